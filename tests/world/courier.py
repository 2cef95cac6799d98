"""Reader, Kafka and control in one, and unreliable: items come late, twice, out of order, from an older life, or never.

What it plans is always right for what it knows; what it knows may be old, and what it sends may be lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from services.applier.task import Limits, SourceTable, Target, TargetResult, Task, TaskResult
from shared.config.catalogs import ResolvedLake
from shared.messages import Destination as Desired
from shared.messages import ItemKind, Outcome, Progress, SeedMode, WorkItem
from tests.world.holdings import Holdings
from tests.world.referee import Seen, complaints
from tests.world.truth import Truth

Run = Callable[[Task], TaskResult]

LIMITS = Limits(max_open_lakes=5)
LOST = 0.1
"""Share of answers that the courier never hears of."""
ROUNDS = 8


@dataclass
class Receiver:
    """One destination: what is wanted of it, what its cursor holds, and what the courier believes that it holds."""

    desired: Desired
    lake: ResolvedLake
    holdings: Holdings
    cursor: Seen = field(default_factory=Seen)
    believed: Seen = field(default_factory=Seen)

    @property
    def generation(self) -> int:
        return self.desired.generation

    def begin_again(self) -> None:
        """Control's reseed: the next life."""
        self.desired = self.desired.model_copy(update={"generation": self.generation + 1, "replace": True})


@dataclass
class Courier:
    """``oldest`` tells the oldest snapshot that the source still keeps, ``head`` the newest."""

    rng: Random
    source: SourceTable
    receivers: Sequence[Receiver]
    truth: Truth
    run: Run
    oldest: Callable[[], int]
    head: Callable[[], int]
    bag: list[tuple[Receiver, WorkItem]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.first = min(snapshot for snapshot in range(self.truth.head + 1) if self.truth.knows(snapshot))

    # -- one random act -----------------------------------------------------------------------------------------------

    def act(self) -> None:
        self.plan([receiver for receiver in self.receivers if self.rng.random() < 0.7])
        if self.rng.random() < 0.05:
            self.rng.choice(self.receivers).begin_again()
        if self.rng.random() < 0.8:
            self.deliver(self._take())

    def _take(self) -> list[tuple[Receiver, WorkItem]]:
        """Some of the bag, in any order; some of it stays to be delivered again, some is lost for good."""
        taken = self.rng.sample(self.bag, self.rng.randint(0, len(self.bag)))
        for sent in taken:
            if self.rng.random() < 0.8:
                self.bag.remove(sent)
        return [sent for sent in taken if self.rng.random() < 0.95]

    # -- planning -----------------------------------------------------------------------------------------------------

    def plan(self, receivers: Iterable[Receiver]) -> None:
        for receiver in receivers:
            item = self._next(receiver)
            if item is not None:
                self.bag.append((receiver, item))

    def _next(self, receiver: Receiver) -> WorkItem | None:
        """The next item for what is believed of a destination; None where nothing is to do."""
        believed = receiver.believed
        if believed.generation < receiver.generation:
            return self._seed(receiver)
        if self.rng.random() < 0.1:
            return self._item(receiver, ItemKind.PROBE, -1, -1, 0)
        changed = receiver.holdings.first_change(believed.position, self.head())
        if changed is None:
            return self._advance(receiver, believed.position)
        return self._changes(receiver, believed.position, changed)

    def _seed(self, receiver: Receiver) -> WorkItem:
        replays = receiver.desired.seed_mode is SeedMode.REPLAY
        through = max(self.first, self.oldest()) if replays else self.head()
        return self._item(receiver, ItemKind.SEED, -1, -1, through, pinned=replays)

    def _advance(self, receiver: Receiver, position: int) -> WorkItem | None:
        if position == self.head() or self.rng.random() < 0.7:
            return None
        through = self.rng.randint(position + 1, self.head())
        return self._item(receiver, ItemKind.ADVANCE, position, position, through)

    def _changes(self, receiver: Receiver, position: int, changed: int) -> WorkItem:
        """Begin anywhere before the first change, end anywhere from it on; a reader that is behind ends early."""
        after = self.rng.randint(position, changed - 1)
        through = self.head() if self.rng.random() < 0.6 else self.rng.randint(changed, self.head())
        return self._item(receiver, ItemKind.CHANGES, position, after, through, pinned=self._pins() or self._may_pin())

    def _pins(self) -> bool:
        """Ranges of a pipeline without keys always end where they say."""
        return self.source.routing.append_only

    def _may_pin(self) -> bool:
        return self.rng.random() < 0.3

    def _item(
        self, receiver: Receiver, kind: ItemKind, expected: int, after: int, through: int, *, pinned: bool = False
    ) -> WorkItem:
        return WorkItem(
            item=f"item-{next(self.numbers)}",
            kind=kind,
            pipeline=receiver.desired.pipeline,
            destination=receiver.desired.destination,
            generation=receiver.generation,
            expected=expected,
            after=after,
            through=through,
            pinned=pinned,
        )

    # -- delivering ---------------------------------------------------------------------------------------------------

    def deliver(self, sent: Sequence[tuple[Receiver, WorkItem]]) -> None:
        """Run one task for each kind of item, as jobs are made."""
        for kind in dict.fromkeys(item.kind for _, item in sent):
            self._job(kind, [(receiver, item) for receiver, item in sent if item.kind is kind])

    def _job(self, kind: ItemKind, sent: Sequence[tuple[Receiver, WorkItem]]) -> None:
        """One job, or several where one destination would be in it twice: a job has no order."""
        first = list({receiver.desired.destination: (receiver, item) for receiver, item in reversed(sent)}.values())
        targets = tuple(Target(item, receiver.desired, receiver.lake) for receiver, item in first)
        results = self._results(Task(kind, self.source, targets, LIMITS))
        for (receiver, item), result in zip(first, results, strict=True):
            self._hear(receiver, item, result.progress)
        rest = [given for given in sent if given not in first]
        if rest:
            self._job(kind, rest)

    def _results(self, task: Task) -> tuple[TargetResult, ...]:
        """Answers. A source that was flushed since it was attached fails once, and is attached anew (#1413)."""
        results = self.run(task).results
        if any(_is_stale(result.progress) for result in results):
            self.log.append("the attached source was stale")
            return self.run(task).results
        return results

    def _hear(self, receiver: Receiver, item: WorkItem, answer: Progress) -> None:
        where = f"{item.kind} {item.item} of {item.destination} {item.range} over {item.expected}, g{item.generation}"
        self.log.append(f"{where}{', pinned' if item.pinned else ''}: {answer.outcome} {answer.position}")
        expired = 0 <= item.after < self.oldest()
        for complaint in complaints(receiver.cursor, item, answer, receiver.holdings, expired=expired):
            self.wrong.append(f"{where}: {complaint}")
        if answer.outcome is Outcome.APPLIED and answer.position is not None:
            receiver.cursor = Seen(item.generation, answer.position)
        if answer.outcome is Outcome.PARKED and receiver.cursor.generation == receiver.generation:
            receiver.begin_again()
        if self.rng.random() >= LOST:
            receiver.believed = receiver.cursor

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring everybody to the head, whatever has gone before, then deliver what is still in the bag."""
        for _ in range(ROUNDS):
            for receiver in self.receivers:
                receiver.believed = receiver.cursor
            due = [(receiver, item) for receiver in self.receivers if (item := self._due(receiver)) is not None]
            if not due:
                break
            self.deliver(due)
        self.deliver(self.rng.sample(self.bag, len(self.bag)))

    def _due(self, receiver: Receiver) -> WorkItem | None:
        position = receiver.cursor.position
        if receiver.cursor.generation < receiver.generation:
            return self._seed(receiver)
        if receiver.holdings.first_change(position, self.head()) is None:
            return None
        return self._item(receiver, ItemKind.CHANGES, position, position, self.head(), pinned=self._pins())


def _is_stale(answer: Progress) -> bool:
    error = answer.error
    return error is not None and error.retryable and "ducklake_inlined_" in error.message
