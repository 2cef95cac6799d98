"""Reader, Kafka and control in one, and unreliable: items come late, twice, out of order, from an older life, or never.

What it plans is always right for what it knows; what it knows may be old, and what it sends may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from services.applier.task import SourceTable
from shared.messages import ItemKind, Outcome, Progress, SeedMode, WorkItem
from tests.world.referee import Seen, complaints
from tests.world.source import SourceLake
from tests.world.stage import Receiver, Run, send

LOST = 0.1
"""Share of answers that the courier never hears of."""
ROUNDS = 8

NO_REPLAY = ("schema_change", "history_damaged")
"""What a replay would only meet again: then an operator seeds by scan."""
BEGINS_ANEW = {SeedMode.SCAN: SeedMode.SCAN, SeedMode.REPLAY: SeedMode.SCAN, SeedMode.LATEST: SeedMode.LATEST}

Sent = tuple[Receiver, WorkItem]


@dataclass
class Courier:
    """``wrong`` collects what the appliers should not have answered, ``log`` all that they did."""

    rng: Random
    source: SourceLake
    table: SourceTable
    receivers: Sequence[Receiver]
    run: Run
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    bag: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.born = self.source.truth.head

    @property
    def head(self) -> int:
        return self.source.truth.head

    # -- one random act -----------------------------------------------------------------------------------------------

    def act(self) -> None:
        self.plan([receiver for receiver in self.receivers if self.rng.random() < 0.7])
        seeded = [receiver for receiver in self.receivers if receiver.cursor.generation]
        if seeded and self.rng.random() < 0.15:
            self.rng.choice(seeded).begin_again(replace=self.rng.random() < 0.5)
        if self.rng.random() < 0.2:
            self._send_from_another_life(self.rng.choice(self.receivers))
        if self.rng.random() < 0.8:
            self.deliver(self._take())

    def _take(self) -> list[Sent]:
        """Some of the bag, in any order; some of it stays to be delivered again, some is lost for good."""
        taken = self.rng.sample(self.bag, self.rng.randint(0, len(self.bag)))
        for sent in taken:
            if self.rng.random() < 0.8:
                self.bag.remove(sent)
        return [sent for sent in taken if self.rng.random() < 0.95]

    def _send_from_another_life(self, receiver: Receiver) -> None:
        """An item that would fit its destination if only it were of the generation that is there."""
        there = receiver.cursor
        if there.generation and there.position < self.head:
            generation = max(1, there.generation + self.rng.choice([-1, 1]))
            fields = {"expected": there.position, "generation": generation, "pinned": self._always_pinned()}
            self.deliver([(receiver, receiver.item(ItemKind.CHANGES, self.head, **fields))])

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
            return receiver.item(ItemKind.PROBE, 0)
        if believed.generation and self.rng.random() < 0.15:
            return receiver.item(ItemKind.UPKEEP, believed.position, expected=believed.position)
        changed = receiver.holdings.first_change(believed.position, self.head)
        if changed is None:
            return self._advance(receiver, believed.position)
        return self._changes(receiver, believed.position, changed)

    def _seed(self, receiver: Receiver) -> WorkItem:
        replays = receiver.desired.seed_mode is SeedMode.REPLAY
        through = max(self.born, self.source.oldest()) if replays else self.head
        return receiver.item(ItemKind.SEED, through, pinned=replays)

    def _advance(self, receiver: Receiver, position: int) -> WorkItem | None:
        if position == self.head or self.rng.random() < 0.7:
            return None
        return receiver.item(ItemKind.ADVANCE, self.rng.randint(position + 1, self.head), expected=position)

    def _changes(self, receiver: Receiver, position: int, changed: int) -> WorkItem:
        """Begin anywhere before the first change, end anywhere from it on; a reader that is behind ends early."""
        after = self.rng.randint(position, changed - 1)
        through = self.head if self.rng.random() < 0.6 else self.rng.randint(changed, self.head)
        pinned = self._always_pinned() or self.rng.random() < 0.3
        return receiver.item(ItemKind.CHANGES, through, expected=position, after=after, pinned=pinned)

    def _always_pinned(self) -> bool:
        """Ranges of a pipeline without keys always end where they say."""
        return self.source.shape.append_only

    # -- delivering ---------------------------------------------------------------------------------------------------

    def deliver(self, sent: Sequence[Sent]) -> None:
        """Run one task for each kind of item, as jobs are made."""
        for kind in dict.fromkeys(item.kind for _, item in sent):
            self._job(kind, [(receiver, item) for receiver, item in sent if item.kind is kind])

    def _job(self, kind: ItemKind, sent: Sequence[Sent]) -> None:
        """One job, or several where one destination would be in it twice: a job has no order."""
        first = list({receiver.desired.destination: (receiver, item) for receiver, item in reversed(sent)}.values())
        for (receiver, item), answer in zip(first, send(self.table, first, self.run), strict=True):
            self._hear(receiver, item, answer)
        rest = [given for given in sent if given not in first]
        if rest:
            self._job(kind, rest)

    def _hear(self, receiver: Receiver, item: WorkItem, answer: Progress) -> None:
        where = f"{item.kind} {item.item} {item.range} over {item.expected}, g{item.generation}"
        self.log.append(f"{where}{', pinned' if item.pinned else ''}: {answer.outcome} {answer.position}")
        begin = item.through if item.kind is ItemKind.SEED and item.pinned else item.after
        expired = 0 <= begin < self.source.oldest()
        broken = self._is_broken(item)
        for complaint in complaints(receiver.cursor, item, answer, receiver.holdings, expired=expired, broken=broken):
            self.wrong.append(f"{where}: {complaint}")
        if answer.outcome is Outcome.APPLIED and answer.position is not None:
            receiver.cursor = Seen(item.generation, answer.position)
        if answer.error is not None and answer.error.type in NO_REPLAY:
            receiver.desired = receiver.desired.model_copy(
                update={"seed_mode": BEGINS_ANEW[receiver.desired.seed_mode]}
            )
        if answer.outcome is Outcome.PARKED and receiver.cursor.generation == receiver.generation:
            receiver.begin_again(replace=True)
        if self.rng.random() >= LOST:
            receiver.believed = receiver.cursor

    def _is_broken(self, item: WorkItem) -> bool:
        """Whether the columns at the stored position can't be followed to where the item ends."""
        if item.kind not in (ItemKind.CHANGES, ItemKind.ADVANCE):
            return False
        end = self.head if item.kind is ItemKind.CHANGES and not item.pinned else item.through
        return any(item.expected < snapshot <= end for snapshot in self.source.truth.breaks)

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
        if receiver.holdings.first_change(position, self.head) is None:
            return None
        return receiver.item(ItemKind.CHANGES, self.head, expected=position, pinned=self._always_pinned())
