"""A declared layout held against the columns and the layout of the source."""

from __future__ import annotations

import pytest

from shared.config.table_layout import PartitionField, SortKey
from shared.contracts.errors import DestinationError
from shared.contracts.layout import NO_LAYOUT, SAME, TableLayout
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.catalog.reader import Column
from shared.lake.checks.layout_keys import keys_of

COLUMNS = (
    Column("id", "BIGINT"),
    Column("Ts", "TIMESTAMP WITH TIME ZONE"),
    Column("day", "DATE"),
    Column("v", "VARCHAR"),
    Column("tags", "VARCHAR[]"),
)


def layout(by: str = "", order: str = "") -> TableLayout:
    return TableLayout(partitioned_by=by, sorted_by=order)


def test_nothing_declared_is_nothing_to_set() -> None:
    assert keys_of(None, COLUMNS, None) == keys_of(NO_LAYOUT, COLUMNS, None) == ((), ())


def test_columns_are_found_however_they_are_spelled() -> None:
    by, order = keys_of(layout("year(ts), hour(TS), day(day), V", "tags DESC"), COLUMNS, None)
    assert [each.transform for each in by] == ["year", "hour", "day", "identity"]
    assert order == (SortKey("tags", descending=True),)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("gone", "the source has no column 'gone'"),
        ("year(v)", "v is VARCHAR, which has no year"),
        ("hour(day)", "day is DATE, which has no hour"),
        ("tags", "tags is VARCHAR[], whose values name no partition"),
        ("bucket(3, id)", "holds bucket()"),
    ],
)
def test_what_does_not_fit_the_source_is_refused(by: str, said: str) -> None:
    with pytest.raises(DestinationError, match="partitioned_by") as refused:
        keys_of(layout(by), COLUMNS, None)
    assert (refused.value.type, said in refused.value.message) == ("invalid_destination", True)


def test_the_same_is_what_the_source_has() -> None:
    source = Arrangement(
        (("month", "Ts"), ("identity", "v")), (('"v"', "DESC", "NULLS_FIRST"), ("id", "ASC", "NULLS_LAST"))
    )
    by, order = keys_of(layout(SAME, SAME), COLUMNS, source)
    assert by == (PartitionField("month", "Ts"), PartitionField("identity", "v"))
    assert order == (SortKey("v", descending=True, nulls_first=True), SortKey("id"))
    assert keys_of(layout(SAME, SAME), COLUMNS, None) == ((), ()), "where the source is not looked at"


@pytest.mark.parametrize(
    "source",
    [
        Arrangement(partitions=(("bucket(4)", "id"),)),
        Arrangement(sort_keys=(("lower(v)", "ASC", "NULLS_LAST"),)),
        Arrangement(sort_keys=(("v; DROP TABLE t", "ASC", "NULLS_LAST"),)),
        Arrangement(sort_keys=(("v, id", "ASC", "NULLS_LAST"),)),
        Arrangement(sort_keys=(("", "ASC", "NULLS_LAST"),)),
    ],
)
def test_of_the_source_nothing_but_columns_and_times_is_taken_over(source: Arrangement) -> None:
    with pytest.raises(DestinationError, match="the source is"):
        keys_of(layout(SAME, SAME), COLUMNS, source)
