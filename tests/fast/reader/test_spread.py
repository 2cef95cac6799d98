"""Destinations over partitions: even, and where a producer would put them as far as that allows."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import pytest

from services.reader.spread import Spread

KEYS = [f"orders/tenant{number:04d}" for number in range(240)]


@pytest.mark.parametrize(("partitions", "count"), [(12, 240), (48, 240), (48, 100), (48, 7), (1, 50)])
def test_no_partition_has_more_than_its_part(partitions: int, count: int) -> None:
    spread = Spread(partitions)
    loads = Counter(spread.place(key, count) for key in KEYS[:count])
    assert max(loads.values()) <= -(-count // partitions)
    assert set(loads) <= set(range(partitions))


def test_most_are_where_their_key_says() -> None:
    spread = Spread(48)
    at_home = [spread.place(key, len(KEYS)) == crc32(key.encode()) % 48 for key in KEYS]
    assert sum(at_home) / len(KEYS) > 0.7


def test_a_destination_stays_where_it_is_and_leaves_its_place_when_it_goes() -> None:
    spread = Spread(2)
    places = {key: spread.place(key, 4) for key in KEYS[:4]}
    assert {key: spread.place(key, 100) for key in KEYS[:4]} == places
    spread.forget(KEYS[0])
    spread.forget("orders/nobody")
    assert spread.place("orders/newcomer", 4) == places[KEYS[0]]
