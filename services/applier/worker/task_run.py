"""One task on its way through a worker: its items done on many threads, and what became of each.

Nothing in here raises: every error travels home as an outcome.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import duckdb

from services.applier.apply.columns.left_out import RowsLack
from services.applier.apply.cursor.decide import Decision, decide
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.drop import drop
from services.applier.apply.source.reading import ChangeCounts, Reading
from services.applier.apply.source.row_counts import came_and_went
from services.applier.model.grouping import groups_of
from services.applier.model.immediate_answers import failed
from services.applier.model.task import SourceTopic, Tally, Target, TargetResult, Task, TaskResult, WorkerReport
from services.applier.worker.answer_files import AnswerFiles
from services.applier.worker.explanation import explain
from services.applier.worker.in_flight import Numbered, TargetsInFlight, crowded_out, unanswered
from services.applier.worker.same_routing import ROUTED, routed_otherwise
from services.applier.worker.source_reader import LakeReader, Shared, TaskSource
from services.applier.worker.target_result import result_of
from services.applier.worker.topic_reader import TopicReader
from services.applier.worker.turn import TaskTurn
from services.applier.worker.worker_state import Worker, worker
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.reports import UnroutedRecords
from shared.lake.catalog.reader import TableInfo

OF_ONE = frozenset({"internal", "value_refused"})
"""The types of errors that a row or a routing value of a single destination may cause in a shared read."""

Work = Callable[[int, Target], tuple[Applied | None, Reading | None]]
"""What is done for one target; nothing at all where the answer comes later."""


def run_task(task: Task) -> TaskResult:
    """Do a task's items and say what became of each; one failing target, or source, harms no other result.

    Of a task that takes long only those are answered for whose turn came; the others are as they were.
    """
    me = worker(task.limits)
    run = TaskRun(me, task)
    results = run.results()
    evictions = me.pool.evictions - me.reported_evictions
    me.reported_evictions = me.pool.evictions
    report = WorkerReport(os.getpid(), len(me.pool), evictions, run.tally)
    return TaskResult(tuple(results), report, tuple(run.log), tuple(run.unrouted))


@dataclass
class TaskRun:
    """One task on its way through the worker."""

    me: Worker
    task: Task
    tally: Tally = field(default_factory=Tally)
    done: dict[int, TargetResult] = field(default_factory=dict)
    postponed: set[int] = field(default_factory=set)
    """Targets whose turn did not come."""
    log: list[str] = field(default_factory=list)
    unrouted: list[UnroutedRecords] = field(default_factory=list)
    _turn: TaskTurn = field(default_factory=TaskTurn)
    _times: dict[int, datetime | None] = field(default_factory=dict)
    _files: AnswerFiles = field(init=False)
    _source: TaskSource = field(init=False)

    def __post_init__(self) -> None:
        self._files = AnswerFiles(self.task.answers)

    def results(self) -> list[TargetResult]:
        targets = list(enumerate(self.task.targets))
        self._source = self._reader()
        try:
            self._do(targets)
        except Exception as error:
            self._fail(targets, explain(error, f"{self.task.kind} items of {self.task.source.table}"))
        return [self.done[number] for number, _ in targets if number not in self.postponed]

    def _reader(self) -> TaskSource:
        me, source = self.me, self.task.source
        if isinstance(source, SourceTopic):
            return TopicReader(me.brokers, me.memory, me.applier.answers, source, self.task.routed)
        return LakeReader(me.pool, me.wide, source)

    def _do(self, targets: Sequence[Numbered]) -> None:
        if self.task.kind in ROUTED:
            targets = self._routed_alike(targets)
        if self.task.kind is ItemKind.PROBE:
            source = self._present_table()
            self._each(targets, lambda _, target: (self.me.applier.answers.probe(target, source, self._time_of), None))
        elif self.task.kind is ItemKind.DROP:
            self._each(targets, lambda _, target: (drop(self.me.pool, target), None))
        elif self.task.kind is ItemKind.UPKEEP:
            self._each(targets, lambda _, target: (self._keep_up(target), None))
        elif self.task.kind is ItemKind.ADVANCE:
            self._advance(targets)
        elif self.task.kind is ItemKind.SEED:
            self._seed(targets)
        else:
            for group in groups_of(self._still_to_do(targets)):
                self._change_fitting(group)

    # -- kinds --------------------------------------------------------------------------------------------------------

    def _present_table(self) -> TableInfo | None:
        """The source table as it is now; None where there is none, which is the reader's business."""
        try:
            return self._source.table()
        except Exception as error:
            raise explain(error, "reading the source", source=True) from error

    def _time_of(self, snapshot: int) -> datetime | None:
        """When a snapshot of the source was committed, asked for once: many destinations stand at the same."""
        if snapshot not in self._times:
            try:
                self._times[snapshot] = self._source.time_of(snapshot)
            except Exception as error:
                raise explain(error, "reading the source", source=True) from error
        return self._times[snapshot]

    def _routed_alike(self, targets: Sequence[Numbered]) -> Sequence[Numbered]:
        for numbered, why in routed_otherwise(targets, self.task.source.routed_by, self._present_table):
            self._fail([numbered], why)
        return [numbered for numbered in targets if numbered[0] not in self.done]

    def _keep_up(self, target: Target) -> Applied:
        """Upkeep may fail, and then waits for its next time: the destination is none the worse for it."""
        applied = self.me.applier.keep_up(target)
        for step in () if applied.upkeep is None else applied.upkeep.failed:
            self.log.append(f"upkeep of {target.destination.key} ({step.step}) has to wait: {step.reason}")
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
            if decide(self.me.applier.answers.cursor(target), target.item) is Decision.APPLY:
                waiting.append((number, target))
                return None, None
            return self.me.applier.answers.probe(target), None

        self._each(targets, look)
        for group in groups_of(sorted(waiting, key=lambda numbered: numbered[0])):
            self._change_fitting(group)

    def _still_to_do(self, targets: Sequence[Numbered]) -> Sequence[Numbered]:
        """Without those whose cursor is elsewhere: a look at it costs less than reading what it may have passed."""
        waiting = [(number, target) for number, target in targets if not target.looks_first]

        def look(number: int, target: Target) -> tuple[Applied | None, None]:
            cursor = self.me.applier.answers.cursor(target)
            if cursor is None or decide(cursor, target.item) is Decision.APPLY:
                waiting.append((number, target))
                return None, None
            return self.me.applier.answers.probe(target, self._present_table(), self._time_of), None

        self._each([(number, target) for number, target in targets if target.looks_first], look)
        return sorted(waiting, key=lambda numbered: numbered[0])

    def _change_fitting(self, group: Sequence[Numbered]) -> None:
        parts = self._source.parts(group)
        for part in parts or [group]:
            self._change(part, sparing=parts is not None)

    def _change(self, group: Sequence[Numbered], *, sparing: bool = False) -> None:
        """Read the range once for the whole group; if it does not fit, sparingly, and in parts by routing value.

        DuckDB pins 2,048 rows at a time wherever it keeps some, so very wide rows fail long before the disk is full.
        """
        if self._is_late():
            self._postpone(group)
            return
        self._answer_early(at_once=True)
        try:
            shared = self._share(group, sparing=sparing)
            if shared is not None:
                self._change_each(group, shared, sparing=sparing)
                return
            reading = self._read(group, sparing=sparing)
        except duckdb.OutOfMemoryException as error:
            if sparing and len(group) == 1:
                self._fail(group, explain(error, "reading the source"))
                return
            self.log.append(
                f"a range for {len(group)} of the destinations does not fit into memory; it is read sparingly"
            )
            half = len(group) // 2
            for part in filter(None, (group[:half], group[half:])):
                self._change(part, sparing=True)
            return
        except Exception as error:
            self._part(group, explain(error, "reading the source", source=True), sparing=sparing)
            return
        try:
            self._apply_all(reading, group)
        finally:
            self._source.forget(reading)

    def _share(self, group: Sequence[Numbered], *, sparing: bool) -> Shared | None:
        """Read what the group has in common, where each target is then read by itself; None where that is not so."""
        with self._turn.reading():
            shared = self._source.share(self.task.kind, group, sparing=sparing)
        if shared is not None and self.task.counts_shared:
            self.tally.rows_read += shared.records
            self.tally.read_seconds += self._turn.last_read_s
        return shared

    def _change_each(self, group: Sequence[Numbered], shared: Shared, *, sparing: bool) -> None:
        """Those that do not fit into memory together are done sparingly, once the others are done. Unrouted records
        are then those of the ranges that are read instead, at whose ends these go on."""
        too_large: list[Numbered] = []

        def change(number: int, target: Target) -> tuple[Applied | None, Reading | None]:
            try:
                return self._change_one(number, target)
            except duckdb.OutOfMemoryException:
                if sparing:
                    raise
                too_large.append((number, target))
                return None, None

        self._each(group, change)
        if not too_large and shared.unrouted is not None:
            self.unrouted.append(shared.unrouted)
        if too_large:
            self._change(sorted(too_large, key=lambda numbered: numbered[0]), sparing=True)

    def _change_one(self, number: int, target: Target) -> tuple[Applied, Reading]:
        reading = self._source.read(self.task.kind, [(number, target)], sparing=False)
        try:
            if (refused := reading.refused.get(number)) is not None:
                raise refused
            if reading.is_quiet:
                through, at = reading.through, target.item.expected_at or ""
                empty = Applied(Outcome.EMPTY, target.item.expected, through, position_at=at)
                return replace(empty, through_at=reading.through_at), reading
            return self._apply(reading, number, target), reading
        finally:
            self._source.forget(reading)

    def _part(self, group: Sequence[Numbered], error: ViaduckError, *, sparing: bool) -> None:
        """A reading failed: halve the group until who is to blame stands alone, where it may be one of them."""
        if len(group) == 1 or error.type not in OF_ONE:
            self._fail(group, error)
            return
        self.log.append(f"a reading for {len(group)} of the destinations failed; it is done in two: {error}")
        half = len(group) // 2
        for part in (group[:half], group[half:]):
            self._change(part, sparing=sparing)

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
        """What the destination's rows don't complete is left out of the reading, a record more with each try."""
        while True:
            try:
                return self.me.applier.apply(self._change_of(reading, number, target))
            except RowsLack as lack:
                if reading.refuse is None:
                    raise
                reading.refuse(lack.places)
                if (refused := reading.refused.get(number)) is not None:
                    raise refused from None

    def _change_of(self, reading: Reading, number: int, target: Target) -> DestinationChange:
        counts, evolution = reading.counts[number], reading.evolutions.get(number)
        return DestinationChange(
            target, reading.through, reading.table, number, reading, counts, evolution, through_at=reading.through_at
        )

    def _nothing_changed(self, reading: Reading, number: int) -> bool:
        counts = reading.counts[number]
        is_over_rows = self.task.kind is ItemKind.CHANGES and not reading.through_at
        is_quiet = not counts.touched and not counts.upserts and number not in reading.evolutions
        return is_over_rows and is_quiet

    def _read(self, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        with self._turn.reading():
            reading = self._source.read(self.task.kind, group, sparing=sparing)
        self._tell_layout(reading)
        if self.task.counts_shared:
            self.tally.rows_read += reading.rows_read
            self.tally.read_seconds += self._turn.last_read_s
            self.tally.routing_mutations += reading.routing_mutations
        return reading

    def _tell_layout(self, reading: Reading) -> None:
        """Say once for each worker and table that files can't be left out, and what ends that (H17)."""
        notice = reading.layout.notice(reading.table.schema, reading.table.name)
        if notice is not None and notice not in self.me.told:
            self.me.told.add(notice)
            self.log.append(notice)

    # -- many targets at once -----------------------------------------------------------------------------------------

    def _each(self, targets: Sequence[Numbered], work: Work) -> None:
        """Run ``work`` for each target on the worker's threads. A stalled target is abandoned, with an outcome.

        No target waits for another target's catalog: the slots of silent ones are given to others.
        """
        width, waiting, running = self.me.width, deque(targets), TargetsInFlight()
        width.begin()
        while waiting or running:
            if waiting and self._is_late():
                self._postpone(waiting)
                waiting.clear()
                continue
            places = min(width.most, width.now + 2 * running.silent)
            while waiting and len(running) < places:
                numbered = waiting.popleft()
                running.begin(self.me.threads.submit(self._one, *numbered, work), numbered)
            finished = running.wait()
            if not finished and running.has_stalled(
                self.task.limits.stall_s, self.task.limits.deadline_of(self.task.kind)
            ):
                self._leave_behind(running, waiting)
                return
            if finished:
                width.judge(len(finished), full=bool(waiting) and len(running) < places)
            for number, result in finished:
                if result is not None:
                    self.done[number] = result
            self._answer_early()

    def _answer_early(self, *, at_once: bool = False) -> None:
        """Report finished targets to the driver; ``at_once`` before a read, whose duration is unknown."""
        try:
            self._files.leave(self.done, at_once=at_once)
        except OSError as error:
            self.log.append(f"answers of a running task could not be reported before its end: {error}")

    def _is_late(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._turn.is_over(len(self.done), len(self.task.targets) - len(self.done))

    def _postpone(self, targets: Iterable[Numbered]) -> None:
        self.postponed.update(number for number, _ in targets)

    def _one(self, number: int, target: Target, work: Work) -> TargetResult | None:
        began = time.perf_counter()
        try:
            applied, reading = work(number, target)
        except Exception as error:
            return self._failed(target, explain(error, f"{self.task.kind} of {target.destination.key}"))
        if applied is None:
            return None
        return self._result(number, target, applied, reading, time.perf_counter() - began)

    def _leave_behind(self, stalled: TargetsInFlight, never_begun: Iterable[Numbered]) -> None:
        """Give up waiting. The threads go on by themselves; whatever they still commit, the fence judges."""
        self.me.leave(
            stalled.begun,
            [target.lake for _, target, _ in stalled.left()],
            self.task.limits.deadline_of(self.task.kind),
        )
        for number, target, seconds in stalled.left():
            self.done[number] = self._failed(target, unanswered(target, seconds))
        for number, target in never_begun:
            self.done[number] = self._failed(target, crowded_out(target, len(stalled), self.task.limits.stall_s))

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _fail(self, targets: Sequence[Numbered], error: ViaduckError) -> None:
        for number, target in targets:
            self.done.setdefault(number, self._failed(target, error))

    def _failed(self, target: Target, error: ViaduckError) -> TargetResult:
        return TargetResult(failed(target.item, error, self.task.applier))

    def _result(
        self, number: int, target: Target, applied: Applied, reading: Reading | None, seconds: float | None = None
    ) -> TargetResult:
        wrote = applied.outcome is Outcome.APPLIED
        counts = reading.counts[number] if reading is not None and wrote else ChangeCounts()
        self.tally.conflicts_resolved += came_and_went(counts, applied.deleted)
        return result_of(target, applied, counts, reading, seconds, self.task.applier)
