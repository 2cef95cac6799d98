"""Which snapshots made a table's columns what they are."""

from __future__ import annotations

import pytest

from shared.lake.columns.history import ColumnVersion, reshapings


def column(number: int, name: str, begin: int, end: int | None = None, default: str | None = None) -> ColumnVersion:
    return ColumnVersion(number, None, name, "int64", default, begin, end)


@pytest.mark.parametrize(
    ("versions", "at", "reshaped"),
    [
        ([column(1, "a", 3)], 9, (3,)),
        ([column(1, "a", 3), column(2, "b", 7)], 9, (3, 7)),
        ([column(1, "a", 3), column(2, "b", 7)], 6, (3,)),
        ([column(1, "a", 3, 5), column(1, "c", 5)], 9, (3, 5)),
        ([column(1, "a", 3), column(2, "b", 3, 8)], 9, (3, 8)),
        ([column(1, "a", 3), column(2, "b", 3, 8), column(3, "b", 8)], 9, (3, 8)),
        ([column(1, "a", 3), column(2, "b", 4, 6), column(2, "b", 6, default="1")], 9, (3, 4)),
        ([column(1, "a", 3), column(2, "b", 4, 6), column(2, "c", 6), column(1, "d", 9)], 9, (3, 4, 6, 9)),
        ([], 9, ()),
    ],
    ids=[
        "born", "added", "added later", "renamed", "dropped", "replaced", "another default", "several", "nothing known",
    ],
)  # fmt: skip
def test_the_snapshots_that_changed_the_columns(
    versions: list[ColumnVersion], at: int, reshaped: tuple[int, ...]
) -> None:
    assert reshapings(versions, at) == reshaped
