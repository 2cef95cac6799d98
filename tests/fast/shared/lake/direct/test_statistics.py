"""Statistics that direct commits merge are never narrower than a column's values, whoever writes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lake.columns.history import Field
from shared.lake.direct.state import ColumnStats
from shared.lake.direct.statistics import ORDERS, FileColumn, are_comparable, file_columns, merged

MOMENTS = (
    "-infinity",
    "290309-12-22 (BC) 00:00:00",
    "0044-03-15 (BC) 12:00:00",
    "0001-01-01 (BC) 00:00:00",
    "0001-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "2024-02-29 00:00:00",
    "2024-02-29 00:00:00.000001",
    "9999-12-31 23:59:59",
    "12024-01-01 00:00:00",
    "294247-01-10 04:00:54.775806",
    "infinity",
)
"""In their order."""


def batch(kind: str, *values: str | None, nan: bool = False) -> FileColumn:
    valid = sorted((value for value in values if value is not None), key=ORDERS[kind])
    return FileColumn(
        column_id=1,
        kind=kind,
        bytes=1,
        values=len(values) + nan,
        nulls=len(values) - len(valid),
        least=valid[0] if valid else None,
        greatest=valid[-1] if valid else None,
        has_nan=nan if kind.startswith("float") else None,
    )


@pytest.mark.parametrize("kind", ["timestamp", "date", "timestamptz"])
def test_moments_compare_as_their_times_do_however_they_are_spelled(kind: str) -> None:
    texts = list(dict.fromkeys(_spelled(text, kind) for text in MOMENTS))
    backwards = texts[::-1]
    assert sorted(backwards, key=ORDERS[kind]) == texts


def _spelled(text: str, kind: str) -> str:
    if "infinity" in text:
        return text
    return {"date": text.rpartition(" ")[0], "timestamptz": f"{text}+00"}.get(kind, text)


@given(st.lists(st.lists(st.sampled_from([*MOMENTS, None]), min_size=1, max_size=4), min_size=1, max_size=6))
def test_bounds_hold_for_all_that_was_ever_written_and_are_never_given_up(batches: list[list[str | None]]) -> None:
    order, kept, had = ORDERS["timestamp"], None, list[str]()
    for number, values in enumerate(batches):
        kept = merged(kept, batch("timestamp", *values), was_empty=number == 0)
        had += [value for value in values if value is not None]
        assert kept is not None
        assert (kept.least, kept.greatest) == ((min(had, key=order), max(had, key=order)) if had else (None, None))


def test_a_column_of_nothing_but_nulls_takes_the_bounds_of_its_first_values() -> None:
    """The extension would do so at its next insert, with the bounds of that insert."""
    nulls = merged(None, batch("int32", None), was_empty=True)
    kept = merged(nulls, batch("int32", "5"), was_empty=False)
    assert kept is not None
    assert (kept.contains_null, kept.least, kept.greatest) == (True, "5", "5")


def test_nan_has_no_place_among_bounds() -> None:
    kept = merged(ColumnStats(False, False, "1.0", "2.0"), batch("float64", nan=True), was_empty=False)
    assert kept is not None
    assert (kept.contains_nan, kept.least, kept.greatest) == (True, "1.0", "2.0")


@pytest.mark.parametrize(
    ("kind", "value", "least", "greatest"), [("float64", "5.0", "-inf", "inf"), ("varchar", "m", "", None)]
)
def test_where_values_may_have_had_no_bounds_the_widest_are_kept(
    kind: str, value: str, least: str, greatest: str | None
) -> None:
    kept = merged(ColumnStats(False, True, None, None), batch(kind, value), was_empty=False)
    assert kept is not None
    assert (kept.least, kept.greatest) == (least, greatest)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1))
def test_a_text_with_a_nul_lies_between_its_files_bounds(texts: list[str]) -> None:
    texts.append("a\x00b")
    told = {"min": min(texts), "max": max(texts), "num_values": str(len(texts)), "null_count": "0"}
    (column,) = file_columns([Field(1, "v", "varchar", ())], {'"v"': told})
    assert column.least is not None
    assert column.greatest is not None
    assert "\x00" not in column.least + column.greatest
    assert all(column.least <= text <= column.greatest for text in texts)


def test_bounds_that_cannot_be_read_are_noticed() -> None:
    assert not are_comparable(ColumnStats(False, None, "yesterday", None), "timestamp")
    assert are_comparable(ColumnStats(False, None, "-infinity", "294247-01-10 04:00:54.775806"), "timestamp")
    assert not are_comparable(ColumnStats(False, None, "1", "many"), "decimal(10,2)")
