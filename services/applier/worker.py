"""A Spark Python worker's side: one DuckDB instance that outlives jobs, and the one function that a task calls.

Spark keeps its Python workers between jobs as long as none raises, leaves input unread or idles for a minute
(SPEED §4); so nothing in here raises, and every error travels home as an outcome.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import duckdb

from services.applier.answer import answer, failed
from services.applier.apply import Applied, Applier, Change
from services.applier.claim import Choice, claim
from services.applier.decide import Decision, decide
from services.applier.drop import drop
from services.applier.feed import Feed
from services.applier.reading import Counts, Reading
from services.applier.task import Limits, Target, TargetResult, Task, TaskResult, WorkerReport
from services.applier.under_way import Doing, Numbered, UnderWay, crowded_out, unanswered
from services.applier.width import Width
from shared.errors import DestinationError, ViaduckError
from shared.lake.catalog import TableInfo
from shared.lake.engine import connect, release
from shared.lake.failure import classify, invalidates_instance
from shared.lake.pool import LakePool
from shared.messages import ItemKind, Outcome

OF_THE_SOURCE = frozenset(
    {
        "destination_unreachable",
        "destination_busy",
        "storage_failed",
        "storage_refused",
        "access_denied",
        "lake_missing",
        "lake_incompatible",
    }
)
"""What is said of any lake and means, while the source is read, that no destination is to blame."""

Work = Callable[[int, Target], tuple[Applied | None, Reading | None]]
"""What is done for one target; nothing at all where the answer comes later."""


@dataclass
class _Tally:
    """What one task adds to the report."""

    rows_read: int = 0
    read_seconds: float = 0.0
    routing_mutations: int = 0
    conflicts_resolved: int = 0


class Worker:
    """One process's instance, lakes and threads. Built at the first task, anew after an instance was invalidated."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        spill = os.path.join(tempfile.gettempdir(), f"viaduck-spill-{os.getpid()}")  # noqa: PTH118 - DuckDB wants text
        self.con = connect(memory_limit=limits.memory_limit, temp_directory=spill)
        self.pool = LakePool(self.con, limits.max_open_lakes)
        self.applier = Applier(self.con, self.pool, limits)
        self.width = Width(limits.threads, limits.most_threads)
        self.threads = self._hired()
        self.broken = False
        self.reported_evictions = 0
        self._left: list[Doing] = []

    def close(self) -> None:
        """Let go of everything. DuckDB waits for who is left behind, so nobody waits for DuckDB then."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self._left:
            threading.Thread(target=self._close_in_time, name="close", daemon=True).start()
        else:
            self._close()

    def leave(self, behind: Mapping[Doing, float]) -> None:
        """Go on without those, with other threads. ``behind``: when each was begun, in monotonic seconds."""
        self.broken = True
        self._left += behind
        _left_behind.update(behind)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = self._hired()

    def _hired(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.width.most, thread_name_prefix="apply")

    def _close_in_time(self) -> None:
        wait(self._left)
        self._close()

    def _close(self) -> None:
        self.pool.close()
        release(self.con)


MANY_OBJECTS = 10_000
"""More than a task leaves behind."""

_worker: Worker | None = None
_building = threading.Lock()
_left_behind: dict[Doing, float] = {}
"""Who was left behind in this process, and when each was begun."""


def worker(limits: Limits) -> Worker:
    """This process's worker."""
    global _worker
    with _building:
        stale = _worker is not None and (_worker.broken or _worker.limits != limits)
    if stale:
        forget()
    with _building:
        if _worker is None:
            _worker = Worker(limits)
        return _worker


def forget() -> None:
    """Let go of this process's worker; the next task builds a new one."""
    global _worker
    with _building:
        if _worker is not None:
            _worker.close()
            _worker = None


def run_choices(choices: Iterable[Choice]) -> Iterable[TaskResult]:
    """What Spark maps over a partition: do the task that suits this process most."""
    return run_tasks(claim(choice, _open_lakes_of) for choice in choices)


def _open_lakes_of(task: Task) -> int:
    """How many lakes of a task's destinations this process has open."""
    pool = worker(task.limits).pool
    return sum(pool.has_open(target.lake) for target in task.targets)


def run_tasks(tasks: Iterable[Task]) -> Iterable[TaskResult]:
    """Do a partition's tasks, of which there is one: drains its input.

    A process that has somebody in it for good leaves the input's end unread: Spark takes the results and ends it.
    """
    results = []
    for task in tasks:
        results.append(run_task(task))
        if has_stuck(task.limits.deadline_s):
            break
    _spare_what_stays()
    return results


def _spare_what_stays() -> None:
    """PySpark collects garbage after each task, and would search what imports have made, which never is any: 40 ms.

    DuckDB imports more when it is first given Arrow tables, so a look at the beginning is not enough.
    """
    if len(gc.get_objects()) > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


def has_stuck(deadline_s: float) -> bool:
    """Whether somebody who was left behind is still at it past the deadline, and so can bring nothing about any more.

    Each holds a thread, a connection and a DuckDB instance, which only the end of the process takes from it.
    """
    for gone in [each for each in _left_behind if each.done()]:
        del _left_behind[gone]
    return any(time.monotonic() - began > deadline_s for began in _left_behind.values())


def run_task(task: Task) -> TaskResult:
    """Do a task's items and say what became of each; one failing target, or source, harms no other result."""
    me = worker(task.limits)
    run = _Run(me, task)
    results = run.results()
    evictions = me.pool.evictions - me.reported_evictions
    me.reported_evictions = me.pool.evictions
    tally = run.tally
    report = WorkerReport(
        pid=os.getpid(),
        open_lakes=len(me.pool),
        evictions=evictions,
        rows_read=tally.rows_read,
        read_seconds=tally.read_seconds,
        routing_mutations=tally.routing_mutations,
        conflicts_resolved=tally.conflicts_resolved,
    )
    return TaskResult(tuple(results), report, tuple(run.log))


@dataclass
class _Run:
    """One task on its way through the worker."""

    me: Worker
    task: Task
    tally: _Tally = field(default_factory=_Tally)
    done: dict[int, TargetResult] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def results(self) -> list[TargetResult]:
        targets = list(enumerate(self.task.targets))
        try:
            self._do(targets)
        except Exception as error:
            self._fail(targets, self._explain(error, f"{self.task.kind} items of {self.task.source.table}"))
        return [self.done[number] for number, _ in targets]

    def _do(self, targets: Sequence[Numbered]) -> None:
        if self.task.kind is ItemKind.PROBE:
            source = self._present_table()
            self._each(targets, lambda _, target: (self.me.applier.probe(target, source), None))
        elif self.task.kind is ItemKind.DROP:
            self._each(targets, lambda _, target: (drop(self.me.con, self.me.pool, target), None))
        elif self.task.kind is ItemKind.UPKEEP:
            self._each(targets, lambda _, target: (self._keep_up(target), None))
        elif self.task.kind is ItemKind.ADVANCE:
            self._advance(targets)
        elif self.task.kind is ItemKind.SEED:
            self._seed(targets)
        else:
            for group in groups_of(targets):
                self._change(group)

    # -- kinds --------------------------------------------------------------------------------------------------------

    def _present_table(self) -> TableInfo | None:
        """The source table as it is now; None where there is none, which is the reader's business."""
        source = self.task.source
        try:
            with self.me.pool.use(source.lake, read_only=True) as lake:
                return lake.catalog.table(source.schema, source.table, lake.catalog.head().snapshot)
        except Exception as error:
            raise self._explain(error, "reading the source", source=True) from error

    def _keep_up(self, target: Target) -> Applied:
        """Upkeep may fail, and then waits for its next time: the destination is none the worse for it."""
        applied, refused = self.me.applier.keep_up(target)
        if refused is not None:
            self.log.append(f"upkeep of {target.destination.key} has to wait: {refused}")
        return applied

    def _advance(self, targets: Sequence[Numbered]) -> None:
        """Move positions over what is known to be empty: no row is read, only what columns the table has there."""
        ends: dict[int, list[Numbered]] = {}
        for number, target in targets:
            ends.setdefault(target.item.through, []).append((number, target))
        for group in ends.values():
            self._change(group)

    def _seed(self, targets: Sequence[Numbered]) -> None:
        """Read the source once for every destination whose cursor says that it still has to be seeded."""
        waiting: list[Numbered] = []

        def look(number: int, target: Target) -> tuple[Applied | None, None]:
            if decide(self.me.applier.cursor(target), target.item) is Decision.APPLY:
                waiting.append((number, target))
                return None, None
            return self.me.applier.probe(target), None

        self._each(targets, look)
        for group in groups_of(sorted(waiting, key=lambda numbered: numbered[0])):
            self._change(group)

    def _change(self, group: Sequence[Numbered]) -> None:
        """Read the range once for the whole group; one that memory and disk can't hold, in parts by routing value."""
        try:
            reading = self._read(group)
        except duckdb.OutOfMemoryException as error:
            if len(group) == 1:
                self._fail(group, self._explain(error, "reading the source"))
                return
            half = len(group) // 2
            self.log.append(f"a range of {len(group)} destinations does not fit into memory; it is read in two parts")
            self._change(group[:half])
            self._change(group[half:])
            return
        except Exception as error:
            self._fail(group, self._explain(error, "reading the source", source=True))
            return
        try:
            self._apply_all(reading, group)
        finally:
            self._forget(reading)

    def _apply_all(self, reading: Reading, group: Sequence[Numbered]) -> None:
        ready = []
        for number, target in group:
            refused = reading.refused.get(number)
            if refused is not None:
                self._fail([(number, target)], refused)
            elif self._nothing_changed(reading, number):
                empty = Applied(Outcome.EMPTY, target.item.expected, reading.through)
                self.done[number] = self._result(number, target, empty, reading)
            else:
                ready.append((number, target))
        self._each(ready, lambda number, target: (self._apply(reading, number, target), reading))

    def _apply(self, reading: Reading, number: int, target: Target) -> Applied:
        change = Change(target, reading.through, reading.table, number, reading, reading.counts[number])
        return self.me.applier.apply(change)

    def _nothing_changed(self, reading: Reading, number: int) -> bool:
        counts = reading.counts[number]
        return self.task.kind is ItemKind.CHANGES and not counts.touched and not counts.upserts

    def _read(self, group: Sequence[Numbered]) -> Reading:
        began = time.perf_counter()
        source, con = self.task.source, self.me.con.cursor()
        try:
            with self.me.pool.use(source.lake, read_only=True) as lake:
                try:
                    reading = Feed(con, lake, source).read(self.task.kind, group)
                except duckdb.Error:
                    self.me.pool.evict(lake)
                    raise
        finally:
            release(con)
        if self.task.counts_shared:
            self.tally.rows_read += reading.rows_read
            self.tally.read_seconds += time.perf_counter() - began
            self.tally.routing_mutations += reading.routing_mutations
        return reading

    # -- many targets at once -----------------------------------------------------------------------------------------

    def _each(self, targets: Sequence[Numbered], work: Work) -> None:
        """Run ``work`` for each target on the worker's threads. Who stalls is left behind, with an outcome.

        Nobody waits for one that waits for its catalog: the places of those that are silent are given to others.
        """
        width, waiting, running = self.me.width, deque(targets), UnderWay()
        width.begin()
        while waiting or running:
            places = min(width.most, width.now + 2 * running.silent)
            while waiting and len(running) < places:
                numbered = waiting.popleft()
                running.begin(self.me.threads.submit(self._one, *numbered, work), numbered)
            finished = running.wait()
            if not finished and running.has_stalled(self.task.limits.stall_s):
                self._leave_behind(running, waiting)
                return
            if finished:
                width.judge(len(finished), full=bool(waiting))
            for number, result in finished:
                if result is not None:
                    self.done[number] = result

    def _one(self, number: int, target: Target, work: Work) -> TargetResult | None:
        began = time.perf_counter()
        try:
            applied, reading = work(number, target)
        except Exception as error:
            return self._failed(target, self._explain(error, f"{self.task.kind} of {target.destination.key}"))
        if applied is None:
            return None
        return self._result(number, target, applied, reading, time.perf_counter() - began)

    def _leave_behind(self, stalled: UnderWay, never_begun: Iterable[Numbered]) -> None:
        """Give up waiting. The threads go on by themselves; whatever they still commit, the fence judges."""
        self.me.leave(stalled.begun)
        for number, target, seconds in stalled.left():
            self.done[number] = self._failed(target, unanswered(target, seconds))
        for number, target in never_begun:
            self.done[number] = self._failed(target, crowded_out(target, len(stalled), self.task.limits.stall_s))

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _explain(self, error: Exception, doing: str, *, source: bool = False) -> ViaduckError:
        """The typed error; an instance that is lost is marked so that the next task gets a new one."""
        if isinstance(error, duckdb.Error) and invalidates_instance(error):
            self.me.broken = True
        known = classify(error, doing)
        if source and known.type in OF_THE_SOURCE:
            return DestinationError("source_unreachable", known.message, "check the source's catalog and store")
        return known

    def _fail(self, targets: Sequence[Numbered], error: ViaduckError) -> None:
        for number, target in targets:
            self.done.setdefault(number, self._failed(target, error))

    def _failed(self, target: Target, error: ViaduckError) -> TargetResult:
        return TargetResult(failed(target.item, error, self.task.applier))

    def _result(
        self, number: int, target: Target, applied: Applied, reading: Reading | None, seconds: float | None = None
    ) -> TargetResult:
        wrote = applied.outcome is Outcome.APPLIED
        counts = reading.counts[number] if reading is not None and wrote else Counts()
        phases = dict(reading.seconds) if reading is not None else {}
        if seconds is not None:
            phases["apply"] = seconds
        progress = answer(target.item, applied.outcome, self.task.applier).model_copy(
            update={
                "generation": applied.generation or target.item.generation,
                "position": applied.position,
                "through": applied.through,
                "deleted": applied.deleted,
                "upserted": counts.upserts,
                "inserted": applied.inserted,
                "rows_applied": applied.rows_applied,
                "seconds": {phase: round(spent, 6) for phase, spent in phases.items()},
            }
        )
        matched = matched_rows(counts, applied.deleted)
        self.tally.conflicts_resolved += came_and_went(counts, applied.deleted)
        gone = max(0, counts.touched - counts.upserts)
        return TargetResult(progress, matched, gone, seconds if wrote else None)

    def _forget(self, reading: Reading) -> None:
        con = self.me.con.cursor()
        try:
            reading.drop(con)
        except duckdb.Error:
            self.me.broken = True  # the next task gets a new instance, and this one's memory with it
        finally:
            release(con)


def groups_of(targets: Sequence[Numbered]) -> list[list[Numbered]]:
    """Targets that can share one reading: the same frontier, and the same end where it is meant to the letter."""
    groups: dict[tuple[object, ...], list[Numbered]] = {}
    for number, target in targets:
        item = target.item
        mode = target.destination.seed_mode if item.kind is ItemKind.SEED else None
        key = (item.after, item.pinned, item.through if item.pinned else None, mode)
        groups.setdefault(key, []).append((number, target))
    return list(groups.values())


def matched_rows(counts: Counts, deleted: int) -> int:
    """Upserts that replaced a row: exact where the net change holds only upserts, else by what the range took away."""
    return deleted if counts.touched == counts.upserts else min(counts.matched, deleted)


def came_and_went(counts: Counts, deleted: int) -> int:
    """Touched keys that were there neither before nor after: changes that cancelled each other."""
    gone = max(0, deleted - matched_rows(counts, deleted))
    return max(0, counts.touched - counts.upserts - gone)
