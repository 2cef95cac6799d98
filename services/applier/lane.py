"""One lane: takes what is waiting, runs it as jobs, answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from services.applier.admit import Admission, admit
from services.applier.answer import answer, answer_again, failed, unknown
from services.applier.directory import Directory
from services.applier.group import Job, Lane, jobs
from services.applier.jobs import Jobs
from services.applier.measure import Measure
from services.applier.outbox import Outbox, Place
from services.applier.task import Target
from shared.config.catalogs import ResolvedLake
from shared.errors import DestinationError, ViaduckError
from shared.lake.failure import first_lines
from shared.messages import Destination, Outcome, Progress, WorkItem

log = structlog.get_logger(__name__)

MAX_TARGETS = 500
"""Items of one job at most: what is waiting is taken in bounded bites."""

LINGER_S = 0.01
"""A burst of items is still arriving when its first one is here; a moment's patience makes one job of it."""

HELD_LOOK_S = 0.1
KEEP_WARM_S = 20.0


@dataclass(frozen=True)
class Waiting:
    """An item, where it came from, and since when it waits (monotonic seconds)."""

    item: WorkItem
    place: Place
    since: float


def repeats(newer: WorkItem, older: WorkItem) -> bool:
    """Whether an item asks for the same as one that was sent before it, so that one answer will do for both."""

    def asked(item: WorkItem) -> tuple[object, ...]:
        return item.key, item.kind, item.generation, item.expected, item.after, item.pinned

    return newer.attempt > older.attempt and asked(newer) == asked(older)


class LaneThread(threading.Thread):
    """Runs its items beside the other lanes. ``offer`` from any thread; ``stop`` ends after the job in hand."""

    def __init__(
        self,
        lane: Lane,
        jobs: Jobs,
        directory: Directory,
        resolve: Callable[[Destination], ResolvedLake],
        outbox: Outbox,
        measure: Measure,
        applier: str,
        on_broken: Callable[[Exception], None],
    ) -> None:
        super().__init__(name=f"lane {lane}", daemon=True)
        self._lane, self._jobs, self._directory, self._resolve = lane, jobs, directory, resolve
        self._outbox, self._measure, self._applier, self._on_broken = outbox, measure, applier, on_broken
        self._waiting: list[Waiting] = []
        self._taken: dict[str, Waiting] = {}
        """What is under way and not answered for, by destination."""
        self._repeated: dict[str, Waiting] = {}
        """What repeats that."""
        self._wake = threading.Condition()
        self._stopped = False

    def offer(self, waiting: Sequence[Waiting]) -> None:
        with self._wake:
            self._waiting.extend(waiting)
            self._wake.notify()

    def merge(self, again: Mapping[str, Waiting]) -> Mapping[str, Sequence[Waiting]]:
        """Take items, by destination, that repeat what is still in hand here; returns what each has replaced.

        A reader sends again what nobody answered for in time. What only waits gives its place to it, and what is under
        way will answer for both: otherwise much would be done twice just when there is too much to do.
        """
        replaced: dict[str, list[Waiting]] = {}
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
            self._stopped = True
            self._wake.notify()

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                self._do(batch)
        except Exception as error:  # the process can't go on without this lane: let it be restarted
            log.exception("lane ended", lane=self._lane.value)
            self._on_broken(error)

    def _take(self) -> list[Waiting] | None:
        """What is to be done next, at most one item of a destination; None at the end. Keeps workers warm meanwhile."""
        with self._wake:
            while not self._waiting and not self._stopped:
                if not self._wake.wait(KEEP_WARM_S) and self._lane is Lane.CHANGES:
                    return []
            if self._stopped:
                return None
            self._linger()
            batch: dict[str, Waiting] = {}
            rest = []
            for waiting in self._waiting:
                full = len(batch) >= MAX_TARGETS or waiting.item.key in batch
                if full:
                    rest.append(waiting)
                else:
                    batch[waiting.item.key] = waiting
            self._waiting, self._taken = rest, dict(batch)
            return list(batch.values())

    def _linger(self) -> None:
        count = 0
        while count < len(self._waiting) < MAX_TARGETS and not self._stopped:
            count = len(self._waiting)
            self._wake.wait(LINGER_S)

    def _do(self, batch: Sequence[Waiting]) -> None:
        if not batch:
            self._jobs.warm()
            return
        held: list[Waiting] = []
        ready: dict[str, tuple[Waiting, Target]] = {}
        for waiting in batch:
            target = self._admitted(waiting, held)
            if target is not None:
                ready[waiting.item.item] = (waiting, target)
        for job in jobs(target for _, target in ready.values()):
            self._run(job, ready)
        if held:
            time.sleep(0 if ready else HELD_LOOK_S)
        with self._wake:
            self._waiting += [*held, *self._repeated.values()]
            self._taken, self._repeated = {}, {}

    def _admitted(self, waiting: Waiting, held: list[Waiting]) -> Target | None:
        """The target of an item that is to run now; every other item is held, answered or dropped."""
        item = waiting.item
        destination = self._directory.get(item.key)
        admission = admit(item, destination, time.monotonic() - waiting.since)
        if admission is Admission.RUN and destination is not None:
            try:
                return Target(item, destination, self._resolve(destination))
            except ViaduckError as error:
                self._outbox.send(failed(item, error, self._applier), waiting.place)
        elif admission is Admission.HOLD:
            held.append(waiting)
        elif admission is Admission.DROP:
            self._outbox.finish(waiting.place)
        elif admission is Admission.REFUSED:
            log.error("refused to drop data that control does not want dropped", destination=item.key, item=item.item)
            self._outbox.finish(waiting.place)
        elif admission is Admission.FENCED and destination is not None:
            said = answer(item, Outcome.FENCED, self._applier).model_copy(update={"generation": destination.generation})
            self._outbox.send(said, waiting.place)
        else:
            self._outbox.send(unknown(item, self._applier), waiting.place)
        return None

    def _run(self, job: Job, ready: dict[str, tuple[Waiting, Target]]) -> None:
        began = time.perf_counter()
        try:
            results = self._jobs.run(job, self._lane)
        except Exception as error:
            self._job_failed(job, ready, error)
            return
        for task in results:
            for line in task.log:
                log.warning(line)
            for result in task.results:
                self._answer(ready[result.progress.item][0], result.progress)
        answered = {result.progress.item for task in results for result in task.results}
        self._put_first([ready[target.item.item][0] for target in job.targets if target.item.item not in answered])
        self._measure.job(job, results, time.perf_counter() - began)

    def _answer(self, waiting: Waiting, progress: Progress) -> None:
        """Answer for an item, and for the one that repeats it."""
        with self._wake:
            del self._taken[waiting.item.key]
            newer = self._repeated.pop(waiting.item.key, None)
        self._outbox.send(progress, waiting.place)
        if newer is None:
            return
        again = answer_again(progress, newer.item)
        if again is not None:
            self._outbox.send(again, newer.place)
        else:
            self.offer([newer])

    def _put_first(self, postponed: Sequence[Waiting]) -> None:
        """They were before all others, and their turn did not come."""
        with self._wake:
            newer = {each.item.key: self._repeated.pop(each.item.key, each) for each in postponed}
            self._waiting[:0] = newer.values()
            for each in postponed:
                del self._taken[each.item.key]
        for each in postponed:
            if newer[each.item.key] is not each:
                self._outbox.finish(each.place)

    def _job_failed(self, job: Job, ready: dict[str, tuple[Waiting, Target]], error: Exception) -> None:
        """Spark itself failed: a Python worker died, or the JVM did. Every item is answered; nobody's position moved
        without its data."""
        log.error("job failed", kind=job.kind.value, targets=len(job.targets), error=first_lines(error))
        told = DestinationError(
            "internal", f"the Spark job failed: {first_lines(error)}", "it is tried again by itself"
        )
        for target in job.targets:
            self._answer(ready[target.item.item][0], failed(target.item, told, self._applier))
        self._jobs.warm()  # raises where the context itself is lost, which ends the lane and with it the process
