"""Which targets share a reading of wide rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.applier.worker.wide_rows import READINGS_IN_MEMORY, VECTOR_ROWS, Wide

MB = 1_000_000
SOURCE: Any = SimpleNamespace(lake=SimpleNamespace(catalog="sqlite:c"), schema="main", table="t")
OTHER: Any = SimpleNamespace(lake=SimpleNamespace(catalog="sqlite:c"), schema="main", table="u")


def group(*rows: int | None) -> list[Any]:
    return [(number, SimpleNamespace(item=SimpleNamespace(rows=each))) for number, each in enumerate(rows)]


def wide(row_bytes: float | None) -> Wide:
    """A worker of a gigabyte, whose readings may so have 200 MB each."""

    class Scales:
        def execute(self, _: str) -> Any:
            return SimpleNamespace(fetchall=lambda: [(row_bytes,)])

    found = Wide(READINGS_IN_MEMORY * 200 * MB)
    reading: Any = SimpleNamespace(memory=lambda name: name, con=Scales())
    found.weigh(SOURCE, reading)
    return found


@pytest.mark.parametrize("row_bytes", [100.0, 200 * MB / VECTOR_ROWS, None])
def test_rows_of_a_usual_width_are_read_as_always(row_bytes: float | None) -> None:
    assert wide(row_bytes).parts(SOURCE, group(10_000_000, 10_000_000)) is None


def test_wide_rows_are_read_for_as_many_as_fit() -> None:
    parts = wide(2.0 * MB).parts(SOURCE, group(50, 50, 50, 10, None, 300, 1))
    assert parts is not None
    assert [[number for number, _ in part] for part in parts] == [[0, 1], [2, 3, 4], [5], [6]]


def test_what_is_known_of_a_table_says_nothing_of_another() -> None:
    assert wide(2.0 * MB).parts(OTHER, group(50, 50, 50)) is None
