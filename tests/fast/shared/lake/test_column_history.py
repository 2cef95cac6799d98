"""Which snapshot made a table's columns what they are."""

from __future__ import annotations

import pytest

from shared.lake.column_history import ColumnVersion, reshaped_at


def column(number: int, name: str, begin: int, end: int | None = None, default: str | None = None) -> ColumnVersion:
    return ColumnVersion(number, None, name, "int64", default, begin, end)


@pytest.mark.parametrize(
    ("versions", "at", "reshaped"),
    [
        ([column(1, "a", 3)], 9, 3),
        ([column(1, "a", 3), column(2, "b", 7)], 9, 7),
        ([column(1, "a", 3), column(2, "b", 7)], 6, 3),
        ([column(1, "a", 3, 5), column(1, "c", 5)], 9, 5),
        ([column(1, "a", 3), column(2, "b", 3, 8)], 9, 8),
        ([column(1, "a", 3), column(2, "b", 4, 6), column(2, "b", 6, default="1")], 9, 4),
        ([], 9, 0),
    ],
    ids=["born", "added", "added later", "renamed", "dropped", "another default", "nothing known"],
)
def test_the_newest_snapshot_that_changed_the_columns(versions: list[ColumnVersion], at: int, reshaped: int) -> None:
    assert reshaped_at(versions, at) == reshaped
