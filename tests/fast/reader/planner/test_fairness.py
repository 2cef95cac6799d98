"""Whoever of the healthy has waited longest goes first, in each room, and no room stays empty while somebody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from services.reader.planner.actions import Send
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.frontier import is_settled
from services.reader.planner.scheduling import Rules, choose
from services.reader.planner.waiting_queue import ROOMS, Room
from shared.contracts.messages import ItemKind, SeedMode
from shared.contracts.upkeep import Compaction
from tests.fast.reader.simulation import World, spec

NAMES = "abcdefgh"
AT_ONCE = (ItemKind.DROP,)
LONG_AGO = datetime.min.replace(tzinfo=UTC)
RULES = Rules(
    max_rows_in_flight=30, segment_rows=10, confirm_within_s=20, compaction=Compaction(applies=3), advance_after_s=1e9
)


class Place(NamedTuple):
    """Where a destination has to stand: ``order`` is by kind, then by the age of what it lacks, then by name."""

    room: Room
    is_retry: bool
    order: tuple[bool, datetime, str]


def place_of(tracked: DestinationState, kind: ItemKind) -> Place:
    order = kind not in AT_ONCE, tracked.waits_since or LONG_AGO, tracked.name
    return Place(ROOMS.get(kind, Room.CHANGES), tracked.attempts > 0, order)


@dataclass
class FairWorld(World):
    """Holds each turn of the planner against who was waiting in it."""

    sent: int = 0

    def plan(self) -> None:
        known = len(self.items)
        super().plan()
        new = self.items[known:]
        self.sent += len(new)
        waiting = list(self._waiting())
        for room in Room:
            held_back = [place for place, _ in waiting if place.room is room and not place.is_retry]
            gone = [place for place in map(self._place_of, new) if place.room is room and not place.is_retry]
            assert not held_back or not gone or max(gone).order < min(held_back).order, f"{gone} before {held_back}"
        self._check_that_rooms_are_used(waiting)

    def _check_that_rooms_are_used(self, waiting: list[tuple[Place, int]]) -> None:
        used = dict.fromkeys(Room, 0)
        for tracked in self.planner.tracked.values():
            if tracked.in_flight is not None:
                used[ROOMS.get(tracked.in_flight.kind, Room.CHANGES)] += tracked.in_flight.charge
        for room, rows in used.items():
            those = [(place.order, more) for place, more in waiting if place.room is room]
            assert rows or not those, f"nothing is in flight in {room}, and these wait: {those}"
            healthy = [(place.order, more) for place, more in waiting if place.room is room and not place.is_retry]
            if healthy:
                assert rows + min(healthy)[1] > self.rules.max_rows_in_flight, (
                    f"{min(healthy)} waits beside {rows} rows"
                )

    def _waiting(self) -> Iterator[tuple[Place, int]]:
        planner = self.planner
        for tracked in planner.tracked.values():
            draft = choose(tracked, planner.observed, planner.index, self.rules, self.now_s)
            if draft is not None:
                yield place_of(tracked, draft.kind), self.rules.segment_rows if draft.rows is None else draft.rows

    def _place_of(self, send: Send) -> Place:
        """Where it stood: upkeep goes in the place of the changes that it comes before."""
        kind = ItemKind.CHANGES if send.draft.kind is ItemKind.UPKEEP else send.draft.kind
        return place_of(self.planner.tracked[send.destination], kind)


def _commit(world: FairWorld, number: int) -> None:
    rows = {NAMES[(number * step) % 8]: 1 + (number >> step) % 40 for step in range(1, 1 + number % 4)}
    world.commit(rows)


def _sized(world: FairWorld, number: int) -> None:
    world.planner.sized({name: (number * place) % 60 for place, name in enumerate(NAMES, 1)})


DEEDS = (
    (8, _commit),
    (8, lambda w, _: w.poll()),
    (3, lambda w, _: w.catch_up()),
    (4, lambda w, _: w.plan()),
    (10, lambda w, n: w.work(n)),
    (10, lambda w, n: w.hear(n)),
    (2, lambda w, n: w.fail(n)),
    (1, lambda w, n: w.lose(n)),
    (2, _sized),
    (2, lambda w, n: setattr(w, "now_s", w.now_s + n % 40)),
)
DECK = tuple(deed for weight, deed in DEEDS for _ in range(weight))
stories = st.lists(st.integers(0, len(DECK) * 1024 - 1), min_size=40, max_size=160)


@settings(max_examples=150, deadline=None)
@given(st.booleans(), stories)
def test_who_has_waited_longest_goes_first_whatever_happens(append_only: bool, story: list[int]) -> None:
    world = FairWorld(append_only, RULES)
    for place, name in enumerate(NAMES):
        world.want(spec(name, mode=list(SeedMode)[place % 3]))
    for number in story:
        DECK[number % len(DECK)](world, number // len(DECK))
    world.calm_down(lambda: not world.items and not world.answers and is_settled(world.planner))
    assert world.sent >= len(NAMES)
