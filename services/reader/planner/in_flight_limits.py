"""What may be in flight at once, and who goes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.reader.planner.destination_state import DestinationState, ItemInFlight
from services.reader.planner.scheduling import Draft, Rules
from services.reader.planner.waiting_queue import ROOMS, Room, WaitingQueue
from shared.contracts.messages import ItemKind

MOST_UPKEEPS = 2
"""Items of upkeep in flight at once. Destinations that wait for one get changes meanwhile."""

MOST_PROBES = 1_000
"""Probes in flight at once: at a start with ten thousand destinations real work must find its way between them."""

MOST_SEEDS = 200
"""Seeds in flight at once; at most half of them are retries. An applier answers for all seeds of a job together, and
an item without an answer in time is sent again."""

Candidate = tuple[DestinationState, Draft]


@dataclass
class Use:
    """What is in flight of one room; ``retried…`` is the part of destinations that failed before."""

    items: int = 0
    rows: int = 0
    retried_items: int = 0
    retried_rows: int = 0

    def add(self, taken: ItemInFlight, sign: int) -> None:
        self.items += sign
        self.rows += sign * taken.charge
        self.retried_items += sign * taken.is_retry
        self.retried_rows += sign * taken.charge * taken.is_retry


class InFlightLimits:
    """Limits the rows and items in flight over all destinations.

    Changes and seeds have separate limits, so neither waits for the other. Destinations that failed before may use at
    most half of each, so they do not delay the others.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._used = {room: Use() for room in Room}
        self.upkeeps = 0

    @property
    def rows(self) -> int:
        return sum(used.rows for used in self._used.values())

    def admit(
        self,
        waiting: WaitingQueue,
        candidate_of: Callable[[str], Candidate | None],
        send: Callable[[Candidate], None],
    ) -> None:
        """``send`` the waiting items that fit into each limit, oldest first.

        No item overtakes another that waits for room, or a large one would never be sent. Retries wait apart, after
        the others. ``candidate_of`` returns what a destination waits for now; ``send`` must call ``take``.
        """
        for room in Room:
            for is_retry in (False, True):
                if not self._admit_from(room, is_retry, waiting, candidate_of, send):
                    break

    def _admit_from(
        self,
        room: Room,
        is_retry: bool,
        waiting: WaitingQueue,
        candidate_of: Callable[[str], Candidate | None],
        send: Callable[[Candidate], None],
    ) -> bool:
        """Whether all items of one queue were sent."""
        while (name := waiting.first(room, is_retry=is_retry)) is not None:
            candidate = candidate_of(name)
            if candidate is None:
                waiting.discard(name)
            elif not waiting.put(*candidate):  # else what it waits for is not what it was: it has another place
                if not self._fits(room, *candidate):
                    return False
                waiting.discard(name)
                send(candidate)
        return True

    def charge(self, tracked: DestinationState, draft: Draft) -> int:
        """The rows that an item counts for; a range without counts takes a whole segment."""
        if draft.kind is ItemKind.PROBE:
            return 0
        rows = self._rules.segment_rows if draft.rows is None else draft.rows
        return min(rows, self._rules.max_rows_in_flight // 2) if tracked.attempts else rows

    def take(self, item: str, tracked: DestinationState, draft: Draft, until_s: float) -> ItemInFlight:
        """Make room for an item that goes now."""
        charge, is_retry = self.charge(tracked, draft), tracked.attempts > 0
        at = draft.expected_at
        taken = ItemInFlight(item, draft.kind, draft.expected, draft.through, until_s, charge, is_retry, at)
        self._add(taken, 1)
        return taken

    def give_back(self, taken: ItemInFlight) -> None:
        self._add(taken, -1)

    def _add(self, taken: ItemInFlight, sign: int) -> None:
        self._used[ROOMS.get(taken.kind, Room.CHANGES)].add(taken, sign)
        self.upkeeps += sign * (taken.kind is ItemKind.UPKEEP)

    def _fits(self, room: Room, tracked: DestinationState, draft: Draft) -> bool:
        """Whether the item may go now. A single one always may, or what is larger than the bound would never go."""
        used = self._used[room]
        if room is Room.PROBES:
            return used.items < MOST_PROBES
        if room is Room.ADVANCES:
            return used.items < self._rules.advances_at_once
        if room is Room.SEEDS and not _has_place_for_seed(used, tracked):
            return False
        charge, most = self.charge(tracked, draft), self._rules.max_rows_in_flight
        if charge == 0 or used.rows == 0:
            return True
        fits = used.rows + charge <= most
        return fits and (not tracked.attempts or used.retried_rows + charge <= most // 2)


def _has_place_for_seed(used: Use, tracked: DestinationState) -> bool:
    return used.items < MOST_SEEDS and (not tracked.attempts or used.retried_items < MOST_SEEDS // 2)
