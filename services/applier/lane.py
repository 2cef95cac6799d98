"""One lane: takes what is waiting, runs it as jobs, answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from services.applier.backlog import WaitingItem, also_told, choose, repeats, without_superseded
from services.applier.destination_cache import DestinationCache
from services.applier.known_positions import KnownPositions
from services.applier.metrics_recorder import MetricsRecorder
from services.applier.model.admission import Admission
from services.applier.model.grouping import Job, Lane, jobs
from services.applier.model.immediate_answers import answer_again, failed
from services.applier.model.patience import patience_s
from services.applier.model.task import Target, TaskResult, UpkeepTask
from services.applier.model.upkeep_exclusion import UpkeepExclusion
from services.applier.outbox import Outbox
from services.applier.screening import Screen, ScreeningVerdict
from services.applier.spark_jobs import SparkJobs
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.messages import Destination, ItemKind, Progress, WorkItem
from shared.lake.failure import first_lines
from shared.runtime.background import Background, Work

log = structlog.get_logger(__name__)

MAX_TARGETS = 500
"""Items of one job at most: what is waiting is taken in bounded bites."""

MAX_UPKEEPS = 4
"""Of one job: until its turn is over, a destination in it gets no changes."""

HELD_LOOK_S = 0.1
KEEP_WARM_S = 20.0


@dataclass(frozen=True)
class LaneContext:
    """What the lanes of a pipeline share. ``applier``: this process's name, as its answers say it."""

    jobs: SparkJobs
    directory: DestinationCache
    resolve: Callable[[Destination], ResolvedLake]
    upkeep: Callable[[WorkItem, Destination, ResolvedLake], UpkeepTask]
    exclusion: UpkeepExclusion
    known: KnownPositions
    screen: Screen
    outbox: Outbox
    measure: MetricsRecorder
    applier: str


class LaneThread:
    """Runs its items beside the other lanes. ``offer`` from any thread; ``stop`` ends after the job in hand."""

    def __init__(self, lane: Lane, context: LaneContext, loop: Callable[[Work], Background]) -> None:
        """``loop`` makes the thread that runs the lane."""
        self._lane = lane
        self._context = context
        self._loop = loop(self._run_lane)
        self._waiting: list[WaitingItem] = []
        self._taken: dict[str, WaitingItem] = {}
        """Items in work, by destination."""
        self._repeated: dict[str, WaitingItem] = {}
        """What repeats that."""
        self._wake = threading.Condition()
        self._read_s = 0.0
        """How long the last job read the source."""

    def start(self) -> None:
        self._loop.start()

    @property
    def is_alive(self) -> bool:
        return self._loop.is_alive

    def offer(self, waiting: Sequence[WaitingItem]) -> None:
        with self._wake:
            self._waiting.extend(waiting)
            self._wake.notify()

    def merge(self, again: Mapping[str, WaitingItem]) -> Mapping[str, Sequence[WaitingItem]]:
        """Take items, by destination, that repeat unanswered ones; returns what each has replaced.

        A reader sends an item again if the answer is late. The new one replaces an item that only waits, and an item
        in work answers for both: otherwise much would be done twice just when there is too much to do.
        """
        replaced: dict[str, list[WaitingItem]] = {}
        with self._wake:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                key, newer = each.item.key, again.get(each.item.key)
                if newer is None or not repeats(newer.item, each.item):
                    self._waiting.append(each)
                    continue
                if key not in replaced:
                    self._waiting.append(newer)
                replaced.setdefault(key, []).append(each)
            for key, newer in again.items():
                taken = self._taken.get(key)
                if taken is not None and key not in replaced and repeats(newer.item, taken.item):
                    earlier = self._repeated.pop(key, None)
                    replaced[key] = [] if earlier is None else [earlier]
                    self._repeated[key] = newer
        return replaced

    def stop(self) -> None:
        with self._wake:
            self._loop.stopped.set()
            self._wake.notify()

    def _run_lane(self, loop: Background) -> None:
        while (batch := self._take()) is not None:
            loop.turned()
            self._do(batch)

    def _take(self) -> list[WaitingItem] | None:
        """What is to be done next, at most one item of a destination; None at the end. Keeps workers warm meanwhile."""
        while True:
            with self._wake:
                while not self._waiting and not self._loop.stopped.is_set():
                    self._loop.turned()
                    if not self._wake.wait(KEEP_WARM_S) and self._lane is Lane.CHANGES:
                        return []
                if self._loop.stopped.is_set():
                    return None
                self._loop.turned()
                self._linger()
            batch = self._bite()
            if batch:
                return batch
            with self._wake:
                if self._waiting:
                    self._wake.wait(HELD_LOOK_S)

    def _bite(self) -> list[WaitingItem]:
        """Finish with what needs no lake, and take of the rest what runs next."""
        with self._wake:
            ready, done = self._thin()
            free = self._context.exclusion.take(self._lane, {each.item.key for each in ready})
            most = MAX_UPKEEPS if self._lane is Lane.UPKEEP else MAX_TARGETS
            batch = choose([each for each in ready if each.item.key in free], self._is_stale, most)
            self._context.exclusion.release(self._lane, free - {each.item.key for each in batch})
            self._taken = {each.item.key: each for each in batch}
            taken = {id(each) for each in batch}
            self._waiting = [each for each in self._waiting if id(each) not in taken]
        for each, verdict in done:
            self._context.screen.finish(each.item, each.place, verdict)
        return batch

    def _thin(self) -> tuple[list[WaitingItem], list[tuple[WaitingItem, ScreeningVerdict]]]:
        """Let only wait what is to be run, or held; returns what is to be run, and what is done with."""
        now_s = time.monotonic()
        judged = [(each, self._context.screen.judge(each.item, now_s - each.since)) for each in self._waiting]
        held, gone = without_superseded([each for each, verdict in judged if verdict.admission is Admission.HOLD])
        ready = [each for each, verdict in judged if verdict.admission is Admission.RUN]
        self._waiting = [*ready, *held]
        done = [(each, verdict) for each, verdict in judged if verdict.is_final]
        return ready, [*done, *((each, ScreeningVerdict(Admission.DROP)) for each in gone)]

    def _is_stale(self, item: WorkItem) -> bool:
        destination = self._context.directory.get(item.key)
        return destination is not None and self._context.known.is_elsewhere(item, destination)

    def _linger(self) -> None:
        """A burst of items is still arriving when its first one is here; a moment's patience makes one job of it."""
        count = 0
        while count < len(self._waiting) < MAX_TARGETS and not self._loop.stopped.is_set():
            count = len(self._waiting)
            self._wake.wait(patience_s(self._read_s))

    def _do(self, batch: Sequence[WaitingItem]) -> None:
        if not batch:
            self._context.jobs.warm()
            return
        ready: dict[str, tuple[WaitingItem, Target]] = {}
        for waiting in batch:
            target = self._target_of(waiting)
            if target is not None:
                ready[waiting.item.item] = (waiting, target)
        for job in jobs(target for _, target in ready.values()):
            self._run(job, ready)
        self._context.exclusion.release(self._lane, {each.item.key for each in batch})
        with self._wake:
            self._waiting += self._repeated.values()
            self._taken, self._repeated = {}, {}

    def _target_of(self, waiting: WaitingItem) -> Target | None:
        """None where the destination went meanwhile, or has a lake that can't be opened, which is answered."""
        item, destination = waiting.item, self._context.directory.get(waiting.item.key)
        if destination is None:
            self.offer([waiting])
            return None
        try:
            lake = self._context.resolve(destination)
        except ViaduckError as error:
            self._context.outbox.send(failed(item, error, self._context.applier), waiting.place)
            return None
        if item.kind is ItemKind.UPKEEP:
            order = self._context.upkeep(item, destination, lake)
            return Target(item, destination, lake, upkeep=order, is_spelled=self._context.jobs.is_spelled)
        looks_first = item.kind is ItemKind.CHANGES and not self._context.known.is_at(item, destination)
        return Target(item, destination, lake, looks_first, is_spelled=self._context.jobs.is_spelled)

    def _run(self, job: Job, ready: dict[str, tuple[WaitingItem, Target]]) -> None:
        began, begun, since_s = time.perf_counter(), self._context.known.begin(), time.monotonic()
        answered: set[str] = set()

        def hear(answers: Sequence[Progress]) -> None:
            for progress in answers:
                if progress.item in answered:
                    continue
                answered.add(progress.item)
                waiting, target = ready[progress.item]
                self._context.known.note(waiting.item, target.destination, progress, waiting.place[0], begun)
                self._answer(waiting, progress)

        try:
            results = self._context.jobs.run(job, self._lane, hear)
        except Exception as error:
            self._job_failed(replace(job, targets=_without(job.targets, answered)), ready, error)
            return
        for task in results:
            for line in task.log:
                log.warning("spark_task_warning", message=line)
        said = [result.progress for task in results for result in task.results]
        hear(said)
        self._tell_unrouted(results)
        self._put_first([ready[target.item.item][0] for target in _without(job.targets, answered)])
        self._tell_others(said, ready, since_s)
        self._context.measure.job(job, results, time.perf_counter() - began)
        self._read_s = sum(task.report.tally.read_seconds for task in results)

    def _tell_others(
        self, answers: Sequence[Progress], ready: Mapping[str, tuple[WaitingItem, Target]], since_s: float
    ) -> None:
        """Answer what waited for the same destinations before the job began (``since_s``), where that is clear now."""
        by_key = {progress.key: (ready[progress.item][0].item, progress) for progress in answers}
        told: list[tuple[WaitingItem, Progress]] = []
        with self._wake:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                known = by_key.get(each.item.key) if each.since < since_s else None
                said = None if known is None else also_told(*known, each.item)
                if said is None:
                    self._waiting.append(each)
                else:
                    told.append((each, said))
        for each, said in told:
            self._context.outbox.send(said, each.place)

    def _tell_unrouted(self, results: Sequence[TaskResult]) -> None:
        """Once for each range: tasks of one job may have read the same."""
        found = {(each.topic_id, each.after_at, each.through_at): each for task in results for each in task.unrouted}
        for each in found.values():
            self._context.outbox.tell(each.model_copy(update={"applier": self._context.applier}))

    def _answer(self, waiting: WaitingItem, progress: Progress) -> None:
        """Answer an item, and the item that repeats it."""
        with self._wake:
            del self._taken[waiting.item.key]
            newer = self._repeated.pop(waiting.item.key, None)
        self._context.exclusion.release(self._lane, [waiting.item.key])
        self._context.outbox.send(progress, waiting.place)
        if newer is None:
            return
        again = answer_again(progress, newer.item)
        if again is not None:
            self._context.outbox.send(again, newer.place)
        else:
            self.offer([newer])

    def _put_first(self, postponed: Sequence[WaitingItem]) -> None:
        """They were before all others, and their turn did not come."""
        with self._wake:
            newer = {each.item.key: self._repeated.pop(each.item.key, each) for each in postponed}
            self._waiting[:0] = newer.values()
            for each in postponed:
                del self._taken[each.item.key]
        for each in postponed:
            if newer[each.item.key] is not each:
                self._context.outbox.finish(each.place)

    def _job_failed(self, job: Job, ready: dict[str, tuple[WaitingItem, Target]], error: Exception) -> None:
        """Spark itself failed: a Python worker died, or the JVM did. Every item is answered; no position moved
        without its data."""
        log.error("job_failed", kind=job.kind.value, targets=len(job.targets), error=first_lines(error))
        told = DestinationError(
            "internal", f"the Spark job failed: {first_lines(error)}", "it is tried again automatically"
        )
        for target in job.targets:
            self._answer(ready[target.item.item][0], failed(target.item, told, self._context.applier))
        self._context.jobs.warm()  # raises where Spark's context is lost, which ends the lane and so the process


def _without(targets: Sequence[Target], answered: Set[str]) -> tuple[Target, ...]:
    return tuple(target for target in targets if target.item.item not in answered)
