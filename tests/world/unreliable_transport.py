"""Reader, Kafka and control in one, and unreliable: items come late, twice, out of order, from an older life, or never.

What it plans is always right for what it knows; what it knows may be old, and what it sends may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

from services.applier.model.task import SourceTable
from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode, WorkItem
from shared.contracts.messages import Seen as PlannedBy
from shared.contracts.upkeep import UpkeepOrder, UpkeepStep
from tests.world.lake import make_old
from tests.world.layouts import lay_out
from tests.world.owners import Owner
from tests.world.referee import Circumstances, Seen, complaints
from tests.world.service_view import Receiver, Run, send
from tests.world.source import SourceLake
from tests.world.strays import Strays

LOST = 0.1
"""Share of answers that the transport never hears of."""
ROUNDS = 8

NO_REPLAY = ("history_damaged",)
"""What a replay would only meet again: then an operator seeds by scan."""
BEGINS_ANEW = {SeedMode.SCAN: SeedMode.SCAN, SeedMode.REPLAY: SeedMode.SCAN, SeedMode.LATEST: SeedMode.LATEST}

ORDER = UpkeepOrder(steps=tuple(UpkeepStep))

Sent = tuple[Receiver, WorkItem]


@dataclass
class UnreliableTransport:
    """``wrong`` collects what the appliers should not have answered, ``log`` all that they did."""

    rng: Random
    source: SourceLake
    table: SourceTable
    receivers: Sequence[Receiver]
    run: Run
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    bag: list[Sent] = field(default_factory=list)
    owner: Owner | None = None
    """Whoever owns the destinations' lakes and alters their columns, if somebody does."""
    expires: bool = False
    """Upkeep is ordered, too: what the oracle then finds is what expiry has left."""

    def __post_init__(self) -> None:
        self.born = self.source.truth.head
        self.age = 0
        self.planned_at: dict[str, int] = {}
        self.expired = 0
        """Snapshots of destinations that ordered upkeep took."""

    @property
    def head(self) -> int:
        return self.source.truth.head

    # -- one random act -----------------------------------------------------------------------------------------------

    def act(self) -> None:
        self.plan([receiver for receiver in self.receivers if self.rng.random() < 0.7])
        seeded = [receiver for receiver in self.receivers if receiver.cursor.generation]
        if seeded and self.rng.random() < 0.15:
            self.rng.choice(seeded).begin_again(replace=self.rng.random() < 0.5)
        if seeded and self.source.shape.layouts and self.rng.random() < 0.2:
            self._lay_out(self.rng.choice(seeded))
        if self.rng.random() < 0.2:
            self._send_from_another_life(self.rng.choice(self.receivers))
        if self.rng.random() < 0.8:
            self.deliver(self._take())

    def _lay_out(self, receiver: Receiver) -> None:
        """Its owner changes how the table's files are laid out."""
        layout, there = self.rng.choice(self.source.shape.layouts), receiver.promised
        self.log.append(f"owner of {there.id}: {layout}")
        lay_out(self.source.con, there.lake, there.schema, there.table, layout)

    def alter(self) -> None:
        """The owner of a table may alter its columns."""
        seeded = [receiver for receiver in self.receivers if receiver.cursor.generation]
        if self.owner is None or not seeded or not self.owner.wants:
            return
        receiver = self.owner.rng.choice(seeded)
        there = receiver.promised
        act = self.owner.alter(self.source.con, there.lake, there.schema, there.table)
        self.log.append(f"owner of {there.id}: {act}")
        receiver.altered |= act is not None and act.loses

    def moved(self, kept: int) -> None:
        """The source was restored: of what it was, it is the same up to a snapshot, -1 for a lake that replaces it."""
        self.age += 1
        self.born = min(self.born, self.head)
        for receiver in self.receivers:
            cursor = receiver.cursor
            lost = cursor.generation > 0 and (cursor.lost or cursor.position > kept)
            replaced = lost and (cursor.replaced or kept < 0)
            receiver.cursor = replace(cursor, lost=lost, replaced=replaced)
            receiver.believed = replace(receiver.believed, lost=lost, replaced=replaced)

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
            self.deliver([(receiver, self._item(receiver, ItemKind.CHANGES, self.head, **fields))])

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
            return self._item(receiver, ItemKind.PROBE, 0)
        if believed.generation and self.rng.random() < 0.15:
            if self.expires:
                return self._ordered(receiver)
            return self._item(receiver, ItemKind.UPKEEP, believed.position, expected=believed.position)
        if believed.position > self.head:
            return None
        changed = receiver.holdings.first_change(believed.position, self.head)
        if changed is None:
            return self._advance(receiver, believed.position)
        return self._changes(receiver, believed.position, changed)

    def _ordered(self, receiver: Receiver) -> WorkItem:
        return self._item(receiver, ItemKind.UPKEEP, 0, upkeep=ORDER)

    def keep_up(self) -> None:
        """Order upkeep of every destination, where this life has any."""
        seeded = [receiver for receiver in self.receivers if receiver.cursor.generation] if self.expires else []
        self.deliver([(receiver, self._ordered(receiver)) for receiver in seeded])

    def _seed(self, receiver: Receiver) -> WorkItem:
        replays = receiver.desired.seed_mode is SeedMode.REPLAY
        through = max(self.born, self.source.oldest()) if replays else self.head
        return self._item(receiver, ItemKind.SEED, through, pinned=replays)

    def _advance(self, receiver: Receiver, position: int) -> WorkItem | None:
        if position == self.head or self.rng.random() < 0.7:
            return None
        through = self.rng.randint(position, self.head)
        return self._item(receiver, ItemKind.ADVANCE, through, expected=position)

    def _changes(self, receiver: Receiver, position: int, changed: int) -> WorkItem:
        """Begin anywhere before the first change, end anywhere from it on; a reader that is behind ends early."""
        after = self.rng.randint(position, changed - 1)
        through = self.head if self.rng.random() < 0.6 else self.rng.randint(changed, self.head)
        pinned = self._always_pinned() or self.rng.random() < 0.3
        return self._item(receiver, ItemKind.CHANGES, through, expected=position, after=after, pinned=pinned)

    def _item(self, receiver: Receiver, kind: ItemKind, through: int, **fields: Any) -> WorkItem:
        """An item; one that begins beyond the position says which snapshot that was found by, as a reader's does."""
        expected = fields.get("expected", -1)
        if fields.get("after", expected) > expected:
            fields["seen"] = PlannedBy(snapshot=self.head, at=self._committed_at(self.head))
        item = receiver.item(kind, through, **fields)
        self.planned_at[item.item] = self.age
        return item

    def _committed_at(self, snapshot: int) -> datetime:
        return self.source.committed_at(snapshot)

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
        behind = any(item.through > self.head for _, item in first)
        lakes = {receiver.promised.lake for receiver, item in first if item.upkeep is not None}
        for lake in lakes:
            make_old(self.source.con, lake)
        strays = [Strays(lake) for lake in lakes if lake.exists]
        for (receiver, item), answer in zip(first, send(self._table(first), first, self.run), strict=True):
            self._hear(receiver, item, answer, behind=behind)
            for each in strays:
                each.hear(receiver.promised.lake, answer)
        self.wrong += [complaint for each in strays for complaint in each.complaints()]
        rest = [given for given in sent if given not in first]
        if rest:
            self._job(kind, rest)

    def _table(self, sent: Sequence[Sent]) -> SourceTable:
        """The source as it is configured: by the name that its table has now, or by the first that it had, which still
        means it. A source that was restored may be another lake."""
        if not self.age and Random(sent[0][1].item).random() < 0.5:
            return self.table
        return replace(self.table, table=self.source.place.table)

    def _hear(self, receiver: Receiver, item: WorkItem, answer: Progress, *, behind: bool) -> None:
        where = f"{item.kind} {item.item} {item.range} over {item.expected}, g{item.generation}"
        self.log.append(f"{where}{', pinned' if item.pinned else ''}: {answer.outcome} {answer.position}")
        self.expired += sum(step.snapshots_expired for step in answer.upkeep.steps) if answer.upkeep else 0
        at = self._circumstances(receiver, item, behind=behind)
        for complaint in complaints(receiver.cursor, item, answer, receiver.holdings, at):
            self.wrong.append(f"{where}: {complaint}")
        if answer.outcome is Outcome.APPLIED and answer.position is not None:
            receiver.cursor = Seen(item.generation, answer.position)
            receiver.altered &= item.kind is ItemKind.ADVANCE
        if answer.error is not None and answer.error.type in NO_REPLAY:
            receiver.desired = receiver.desired.model_copy(
                update={"seed_mode": BEGINS_ANEW[receiver.desired.seed_mode]}
            )
        reason = answer.error.type if answer.error is not None and answer.outcome is Outcome.PARKED else ""
        held_up = reason == "value_not_carried"
        goes_on = answer.outcome is Outcome.APPLIED and item.generation == receiver.generation
        receiver.held_up = held_up or (receiver.held_up and not goes_on)
        resumes = held_up and self.rng.random() < 0.5
        if reason and not resumes and receiver.cursor.generation == receiver.generation:
            receiver.begin_again(replace=True)
        if self.rng.random() >= LOST:
            receiver.believed = receiver.cursor

    def _circumstances(self, receiver: Receiver, item: WorkItem, *, behind: bool) -> Circumstances:
        begin = item.through if item.kind is ItemKind.SEED and item.pinned else item.after
        planned_before = self.planned_at[item.item] < self.age
        must, may = self._refuses(receiver, item)
        return Circumstances(
            expired=0 <= begin < self.source.oldest(),
            must_refuse=must,
            may_refuse=may,
            unplanned=planned_before and item.seen is not None and not self._is_still_there(item.seen),
            behind=behind,
            ahead=receiver.cursor.position > self.head,
            ended=item.through < self.source.oldest(),
            altered=receiver.altered,
        )

    def _is_still_there(self, seen: PlannedBy) -> bool:
        return seen.snapshot <= self.head and self._committed_at(seen.snapshot) == seen.at

    def _refuses(self, receiver: Receiver, item: WorkItem) -> tuple[bool, bool]:
        """Whether an item brings texts that can't be carried, and whether it reads any, new or not."""
        if item.kind not in (ItemKind.CHANGES, ItemKind.SEED) or not self.source.shape.words:
            return False, False
        ends = {item.through if item.pinned else self.head, *([self.head] if item.kind is ItemKind.CHANGES else ())}
        found = [receiver.holdings.uncarried(item, receiver.desired.seed_mode, end) for end in ends if end <= self.head]
        return bool(found) and all(must for must, _ in found), any(may for _, may in found)

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring everybody to the head, whatever has gone before, then deliver what is still in the bag.

        Who is held up by a row that can't be carried stays there: it is tried once.
        """
        for receiver in self.receivers:
            receiver.held_up = False
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
        if receiver.held_up:
            return None
        if receiver.cursor.lost and receiver.cursor.generation == receiver.generation:
            if position <= self.head:
                return self._item(receiver, ItemKind.PROBE, 0)  # as a reader does that begins
            receiver.begin_again(replace=True)
        if receiver.cursor.generation < receiver.generation:
            return self._seed(receiver)
        if receiver.holdings.first_change(position, self.head) is None:
            return None
        return self._item(receiver, ItemKind.CHANGES, self.head, expected=position, pinned=self._always_pinned())
