"""Known positions of cursors: an item that the cursor has passed is answered without opening the lake.

A position is noted only from an answer that rests on a read of the lake, or on a commit. So an answer from here says
nothing new: it repeats an earlier answer under the name of another item, and messages may be repeated at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from services.applier.model.immediate_answers import REACHING, answer
from shared.contracts.messages import Destination, ItemKind, Outcome, Progress, WorkItem
from shared.contracts.positions import UNSPELLED, SpelledPosition
from shared.kafka.work_consumer import PartitionId

V = TypeVar("V")

MOST_KNOWN = 50_000
"""Destinations whose positions are remembered; those that were noted longest ago are forgotten first."""

MOST_ANSWERED = 50_000
"""Items that are remembered after their answer, although no other item waits for it."""

LOOKED = frozenset({Outcome.APPLIED, Outcome.ALREADY_APPLIED, Outcome.GAP})
"""Outcomes whose position was read from the cursor, or written to it."""

FINAL = frozenset({Outcome.APPLIED, Outcome.ALREADY_APPLIED, Outcome.EMPTY})
"""Outcomes after which sending the same item again can bring nothing about."""

FAILED = frozenset({Outcome.FAILED, Outcome.PARKED})


@dataclass(frozen=True, slots=True)
class KnownPosition:
    """A position, the life of which it was told, and the moment of the note."""

    destination: Destination
    position: int
    rows_applied: int | None
    seeded: bool
    """Whether a seed of this life was answered, so that its table's options were looked at, too."""
    partition: PartitionId
    noted: int
    position_at: str = UNSPELLED

    @property
    def reached(self) -> SpelledPosition:
        return SpelledPosition(self.position, self.position_at)


class KnownPositions:
    """Bounded, thread-safe, and forgotten with the partition that an item came from.

    Positions of one generation only grow, unless the lake is restored. So a lower position always replaces a higher
    one, and a higher one counts only if its read began after the last note: two lanes may answer in another order
    than they read.
    """

    def __init__(self, most: int = MOST_KNOWN, most_answered: int = MOST_ANSWERED) -> None:
        self._most = most
        self._most_answered = most_answered
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KnownPosition] = OrderedDict()
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._failing: OrderedDict[str, None] = OrderedDict()
        self._newest: OrderedDict[str, datetime] = OrderedDict()
        """When the newest item of each destination was published, by its reader's clock."""
        self._moment = 0
        self._forgotten = -1
        """The moment of the last ``forget``: what was looked at before is not noted any more."""

    def begin(self) -> int:
        """The moment before a look, for ``note``."""
        with self._lock:
            return self._moment

    def note(self, item: WorkItem, destination: Destination, progress: Progress, at: PartitionId, begun: int) -> None:
        """Take over what an answer tells. ``at``: where the item came from; ``begun``: from ``begin``."""
        with self._lock:
            self._moment += 1
            if progress.outcome in FAILED:
                _put(self._failing, item.key, None, self._most)
            elif progress.outcome is not Outcome.FENCED:
                self._failing.pop(item.key, None)
            if progress.outcome is Outcome.EMPTY:
                return  # its position is the item's own; the lake was not read
            if progress.outcome not in LOOKED or item.kind is ItemKind.DROP or progress.position is None:
                self._known.pop(item.key, None)
            elif begun > self._forgotten:
                self._raise_or_lower(item, destination, progress, at, begun)

    def _raise_or_lower(
        self, item: WorkItem, destination: Destination, progress: Progress, at: PartitionId, begun: int
    ) -> None:
        known, position = self._known.get(item.key), progress.position
        assert position is not None  # noqa: S101 - ``note`` has looked
        if known is not None and not is_same_life(known.destination, destination):
            known = None
        if known is not None and position > known.position and known.noted > begun:
            return
        was_seeded = known is not None and known.seeded and position >= known.position
        seeded = was_seeded or (item.kind is ItemKind.SEED and progress.outcome is not Outcome.GAP)
        kept = progress.rows_applied
        if kept is None and known is not None and known.position == position:
            kept = known.rows_applied
        noted = KnownPosition(destination, position, kept, seeded, at, self._moment, progress.reached.spelled)
        _put(self._known, item.key, noted, self._most)

    def answer(self, item: WorkItem, destination: Destination, applier: str) -> Progress | None:
        """``already_applied`` for an item that the cursor is known to have passed; None if the lake has to be read.

        ``destination`` is the current declaration. A drop always reads the lake, and so does a probe, unless its reader
        has asked for something else since: what it then hears is an earlier answer. TLA: ``Decide``.
        """
        known = self._of(item, destination)
        if known is None:
            return None
        if not has_passed(known, item) and not (item.kind is ItemKind.PROBE and self.is_outrun(item)):
            return None
        update = {
            "position": known.position,
            "position_at": known.position_at or None,
            "rows_applied": known.rows_applied,
        }
        return answer(item, Outcome.ALREADY_APPLIED, applier).model_copy(update=update)

    def is_at(self, item: WorkItem, destination: Destination) -> bool:
        """Whether the cursor is known to be where the item expects it."""
        known = self._of(item, destination)
        return known is not None and known.reached == item.begin

    def is_elsewhere(self, item: WorkItem, destination: Destination) -> bool:
        """Whether the cursor is known to be elsewhere, so that a current reader would not send this item."""
        known = self._of(item, destination)
        return known is not None and item.kind in REACHING and known.reached != item.begin

    def delivered(self, progress: Progress) -> None:
        """The broker has an item's answer."""
        if progress.outcome in FINAL:
            with self._lock:
                _put(self._answered, progress.item, None, self._most_answered)

    def was_answered(self, item: WorkItem) -> bool:
        """Whether the item itself was answered, so that another answer is of no use."""
        with self._lock:
            return item.item in self._answered

    def hear(self, item: WorkItem) -> None:
        """An item is here, whatever is to become of it."""
        with self._lock:
            newest = self._newest.get(item.key)
            if newest is None or newest < item.published_at:
                _put(self._newest, item.key, item.published_at, self._most)

    def is_outrun(self, item: WorkItem) -> bool:
        """Whether its reader has asked for something else since: it waits for one item of a destination at a time.

        Where its clock was set back it may still wait; then it asks again, and a second try is never outrun.
        """
        with self._lock:
            newest = self._newest.get(item.key)
        return item.attempt == 1 and newest is not None and item.published_at < newest

    def is_failing(self, item: WorkItem) -> bool:
        """Whether the last answer for the item's destination was a failure."""
        with self._lock:
            return item.key in self._failing

    def forget(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """Forget the destinations whose items came from ``partitions``, which others serve from now on; None: all."""
        gone = None if partitions is None else frozenset(partitions)
        with self._lock:
            self._forgotten = self._moment
            self._moment += 1
            for key in [key for key, known in self._known.items() if gone is None or known.partition in gone]:
                del self._known[key]

    def _of(self, item: WorkItem, destination: Destination) -> KnownPosition | None:
        """What is known of the life that both the item and ``destination`` are of."""
        with self._lock:
            known = self._known.get(item.key)
        if known is None or item.generation != destination.generation:
            return None
        return known if is_same_life(known.destination, destination) else None

    def __len__(self) -> int:
        return len(self._known)


def has_passed(known: KnownPosition, item: WorkItem) -> bool:
    """Whether ``decide`` would find nothing left to do for ``item``. Upkeep at exactly this position is
    still to be done; an upkeep from before it is obsolete, unless it was ordered: that has no position."""
    match item.kind:
        case ItemKind.CHANGES | ItemKind.ADVANCE:
            return known.reached.covers(item.end)
        case ItemKind.UPKEEP:
            return item.upkeep is None and known.position > item.through
        case ItemKind.SEED:
            return known.seeded
        case _:
            return False


def is_same_life(one: Destination, other: Destination) -> bool:
    """Whether two declarations are of the same table and generation; an operator's action forces a new read."""
    return one is other or _life(one) == _life(other)


def _life(of: Destination) -> tuple[object, ...]:
    return of.generation, of.revision, of.routing_value, of.lake, of.schema_name, of.table, of.drop


def _put(kept: OrderedDict[str, V], key: str, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
