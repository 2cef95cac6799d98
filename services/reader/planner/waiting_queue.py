"""Destinations whose next item waits for room, in the order in which they go."""

from __future__ import annotations

import heapq
from collections.abc import Set
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.scheduling import Draft
from shared.contracts.messages import ItemKind

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Room(Enum):
    """What an item needs room in. Items of one room never wait for those of another."""

    PROBES = "probes"
    CHANGES = "changes"
    SEEDS = "seeds"
    ADVANCES = "advances"


ROOMS = {ItemKind.PROBE: Room.PROBES, ItemKind.SEED: Room.SEEDS, ItemKind.ADVANCE: Room.ADVANCES}
"""All other kinds share the room of the changes."""

FIRST_IN_ROOM = frozenset({ItemKind.DROP})


class QueuePlace(NamedTuple):
    """Where a candidate stands. ``order`` is by kind, then by age, then by name."""

    room: Room
    is_retry: bool
    order: tuple[bool, datetime, str]


def place_of(tracked: DestinationState, draft: Draft) -> QueuePlace:
    room = ROOMS.get(draft.kind, Room.CHANGES)
    order = draft.kind not in FIRST_IN_ROOM, tracked.waits_since or _LONG_AGO, tracked.name
    return QueuePlace(room, tracked.attempts > 0, order)


class WaitingQueue:
    """A queue for each room, and for those that failed before one of their own. Each step costs a logarithm at most,
    however many wait: entries that do not count any more are dropped when they come to the front."""

    def __init__(self) -> None:
        self._places: dict[str, QueuePlace] = {}
        self._queues: dict[tuple[Room, bool], list[tuple[bool, datetime, str]]] = {
            (room, is_retry): [] for room in Room for is_retry in (False, True)
        }

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> Set[str]:
        """All who wait, for those who ask about tens of thousands."""
        return self._places.keys()

    def put(self, tracked: DestinationState, draft: Draft) -> bool:
        """Let a destination wait, once. Returns whether it stands elsewhere now than it did before."""
        place = place_of(tracked, draft)
        if self._places.get(tracked.name) == place:
            return False
        self._places[tracked.name] = place
        heapq.heappush(self._queues[place.room, place.is_retry], place.order)
        return True

    def discard(self, name: str) -> None:
        self._places.pop(name, None)

    def first(self, room: Room, *, is_retry: bool) -> str | None:
        """Whose turn it is."""
        queue = self._queues[room, is_retry]
        while queue:
            name = queue[0][-1]
            if self._places.get(name) == QueuePlace(room, is_retry, queue[0]):
                return name
            heapq.heappop(queue)
        return None
