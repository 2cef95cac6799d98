"""Destinations over partitions: even, by key as far as that allows, and no more moves than there must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from services.reader.messaging.partitioner import Spread

KEYS = [f"orders/tenant{number:04d}" for number in range(240)]


def spread_of(keys: Sequence[str]) -> Spread:
    spread = Spread()
    for key in keys:
        spread.add(key)
    return spread


@pytest.mark.parametrize(("partitions", "count"), [(12, 240), (48, 240), (48, 100), (48, 7), (1, 50)])
def test_no_partition_has_more_than_its_part(partitions: int, count: int) -> None:
    keys = KEYS[:count]
    spread = spread_of(keys)
    loads = Counter(spread.place(key, partitions) for key in keys)
    assert max(loads.values()) <= -(-count // partitions)
    assert set(loads) <= set(range(partitions))


def test_a_restart_in_which_others_came_first_moves_nobody() -> None:
    before, after = spread_of(KEYS), spread_of(KEYS[::-1])
    places = {key: before.place(key, 48) for key in KEYS}
    assert {key: after.place(key, 48) for key in reversed(KEYS)} == places


def test_a_restart_after_one_came_and_one_went_moves_few() -> None:
    before = spread_of(KEYS)
    places = {key: before.place(key, 48) for key in KEYS}
    after = spread_of([*KEYS[1:], "orders/newcomer"])
    moved = [key for key in KEYS[1:] if after.place(key, 48) != places[key]]
    assert len(moved) <= 5


def test_a_destination_stays_where_it_is_while_others_come() -> None:
    spread = spread_of(KEYS[:4])
    places = {key: spread.place(key, 2) for key in KEYS[:4]}
    for key in KEYS[4:]:
        spread.add(key)
        spread.place(key, 2)
    assert {key: spread.place(key, 2) for key in KEYS[:4]} == places


def test_who_goes_leaves_a_place_to_who_comes() -> None:
    spread = spread_of(KEYS[:4])
    places = {key: spread.place(key, 2) for key in KEYS[:4]}
    spread.remove(KEYS[0])
    spread.remove("orders/nobody")
    spread.add("orders/newcomer")
    assert spread.place("orders/newcomer", 2) == places[KEYS[0]]


def test_items_of_who_is_removed_take_no_place() -> None:
    spread = spread_of(KEYS[:2])
    for number in range(20):
        assert spread.place(f"orders/removed{number}", 2) in (0, 1)
    assert {spread.place(key, 2) for key in KEYS[:2]} == {0, 1}


def test_all_are_placed_anew_where_partitions_were_added() -> None:
    spread = spread_of(KEYS)
    assert {spread.place(key, 2) for key in KEYS} == {0, 1}
    loads = Counter(spread.place(key, 12) for key in KEYS)
    assert set(loads.values()) == {20}
