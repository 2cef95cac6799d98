"""Rows that were fetched for all destinations are handed out whole, to each its own, in their order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from services.applier.apply.source.parcels import FetchedParcels, Parcels, sorted_parcels


@pytest.mark.parametrize("in_order", [True, False])
def test_each_destination_has_its_rows_in_their_order(in_order: bool) -> None:
    rng = random.Random(7)
    numbers = [rng.randrange(9) * 2 for _ in range(200)]
    if in_order:
        numbers.sort()
    values = [[number, None, str(place)] for place, number in enumerate(numbers)]
    rows = pa.table({"d": pa.array(numbers, pa.int32()), "v": pa.array([str(each) for each in values])})
    parcels = sorted_parcels(rows)
    assert parcels is not None
    for number in range(19):
        own = [str(each) for each in values if each[0] == number]
        assert parcels.of(number).column("v").to_pylist() == own
    assert parcels.of(2).column_names == ["v"]


def test_rows_that_nobody_has_are_none() -> None:
    parcels = sorted_parcels(pa.table({"d": pa.array([], pa.int32()), "v": pa.array([], pa.string())}))
    assert parcels is not None
    assert parcels.of(0).num_rows == 0


def test_rows_are_fetched_once_also_where_they_are_too_many() -> None:
    fetched, asked = FetchedParcels(), list[str]()

    def fetch(name: str, found: Parcels | None) -> Parcels | None:
        asked.append(name)
        return found

    for _ in range(3):
        assert fetched.get("rows", lambda: fetch("rows", None)) is None
    assert asked == ["rows"]
