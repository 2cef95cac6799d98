"""Remembers a limited number of routing values that have no destination.

Values are untrusted, and so is their number. The most recent ones are remembered.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from services.reader.planner.counted_changes import CountedStep
from shared.contracts.digest import value_digest
from shared.contracts.reports import LONGEST_OFFERED, MOST_OFFERED, Offer, Offered, UnroutedRecords

LOOK_AGAIN_AFTER_S = 60.0
"""Between two looks at all values, where there were more than could be remembered, or where the first one failed."""


@dataclass(frozen=True)
class RoutingContext:
    """By what a reader tells rows that go somewhere from those that go nowhere.

    ``routes``: the current routing value of each destination of the pipeline, in every share. ``counts_unrouted``:
    whether this reader counts the others, of several of the pipeline. ``unknown``: remembers their values; None if
    discovery is off.
    """

    routes: Mapping[str, str]
    counts_unrouted: Callable[[], bool]
    unknown: UnroutedValues | None = None


class UnroutedValues:
    """Used by one thread. NULL never comes here: it goes nowhere."""

    def __init__(self, most: int = MOST_OFFERED) -> None:
        self._most = most
        self._known: OrderedDict[str, Offered] = OrderedDict()
        self._added: dict[str, int] = {}
        """Of a topic, the records by digest that were in ranges which do not overlap."""
        self._counted_through = 0
        self._looked_s: float | None = None
        self._failed_s = float("-inf")
        self.more = False
        """There were more than could be remembered."""

    @property
    def has_looked(self) -> bool:
        """Whether the values that were there at the start are among those that are remembered."""
        return self._looked_s is not None

    def wants_look(self, now_s: float) -> bool:
        """Whether all values of the source are to be looked at: once, and again where room was made for the others."""
        if self._looked_s is None:
            return now_s - self._failed_s >= LOOK_AGAIN_AFTER_S
        has_room = self.more and len(self._known) <= self._most // 2
        return has_room and now_s - self._looked_s >= LOOK_AGAIN_AFTER_S

    def looked(self, found: Sequence[Offered], more: bool, now_s: float) -> None:
        """Take in what a look at all values found, the greatest first; ``more``: there are more than it says."""
        for each in reversed(found):
            before = self._known.get(each.digest)
            first_seen = each.first_seen if before is None else before.first_seen
            self._remember(each.model_copy(update={"first_seen": first_seen}))
            self._counted_through = max(self._counted_through, each.first_seen)
        self._looked_s, self.more = now_s, more

    def failed(self, now_s: float) -> None:
        """A look at all values failed."""
        self._failed_s = now_s

    def note(self, step: CountedStep, routed: Collection[str]) -> None:
        """Take in a step's rows of values that are not ``routed``."""
        if step.range.through <= self._counted_through:
            return
        wanted = set(routed)
        strange = [(rows, value) for value, rows in step.rows.items() if value not in wanted]
        self.more = self.more or len(strange) > self._most
        for rows, value in heapq.nlargest(self._most, strange):
            self._add(value, rows, step.range.through)

    def recall(self, offer: Offer) -> None:
        """Take in what was offered in an earlier life, of a source that can't be looked at as a whole."""
        for each in offer.values:
            self._remember(each)
        self.more = offer.more

    def note_records(self, found: UnroutedRecords, *, counted: bool) -> None:
        """Take in the values of a topic's range. ``counted``: none of its records was in a range that was added before;
        else they may be among those, and the larger number stands, so that it is never more than there are.
        """
        self.more = self.more or found.more
        for each in reversed(found.values):
            known, added = self._known.get(each.digest), self._added.get(each.digest, 0)
            if counted:
                added += each.rows
            rows = max(added, each.rows, 0 if known is None else known.rows)
            first_seen = each.first_seen if known is None else min(known.first_seen, each.first_seen)
            self._added[each.digest] = added
            self._remember(each.model_copy(update={"rows": rows, "first_seen": first_seen}))

    def offer(self, routed: Collection[str]) -> tuple[Offered, ...]:
        """All remembered values, the most recent last. Those that have a destination meanwhile are removed."""
        among = Among(routed)
        for each in list(self._known.values()):
            if among.has(each):
                self._forget(each.digest)
        return tuple(self._known.values())

    def _add(self, value: str, rows: int, snapshot: int) -> None:
        digest = value_digest(value)
        before = self._known.get(digest)
        first_seen, rows = (snapshot, rows) if before is None else (before.first_seen, before.rows + rows)
        cut = value[:LONGEST_OFFERED]
        self._remember(Offered(value=cut, whole=cut == value, digest=digest, rows=rows, first_seen=first_seen))

    def _remember(self, offered: Offered) -> None:
        self._known[offered.digest] = offered
        self._known.move_to_end(offered.digest)
        while len(self._known) > self._most:
            self._forget(next(iter(self._known)))
            self.more = True

    def _forget(self, digest: str) -> None:
        del self._known[digest]
        self._added.pop(digest, None)


class Among:
    """Tells which offered values are among others, by their digests where they are long."""

    def __init__(self, values: Collection[str]) -> None:
        self._whole = set(values)
        self._long = {value_digest(value) for value in values if len(value) > LONGEST_OFFERED}

    def has(self, offered: Offered) -> bool:
        return offered.value in self._whole if offered.whole else offered.digest in self._long
