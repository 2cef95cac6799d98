"""Laws of any records: a row and what it rescued are its record, whatever came before and beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat
from tests.fast.applier.records.records import BARE, Table, object_of

NAMES = ["a", "b", "A", "c d", "é", '"', "$.a", "\\", "", "rowid", "_rescued", "x" * 300]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ['"', "\\", "\x00", "null", "1", "true", "NaN"]
)
NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=1, max_size=3)

RELAXED = settings(
    database=None, deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def exactly(value: Any) -> Any:
    """A value that equals another one only if it is the same in JSON: a number as such, and no boolean."""
    if isinstance(value, dict):
        return {name: exactly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exactly(each) for each in value]
    return (isinstance(value, bool), value)


def landed(table: Table, rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [exactly(object_of(row, table.types)) for row in rows]


@pytest.mark.slow
@RELAXED
@given(BATCHES)
@example([[{"a": True}], [{"a": 1}, {"a": "1"}, {"a": "true"}]])
@example([[{"a": 1, "b": 2}], [{"b": 3}, {"b": 4, "a": 5}, {"c d": 6, "b": 7}]])
@example([[{"a": 1}], [{"a": 1.0}, {"a": 1.5}, {"a": "1"}, {"a": True}]])
@example([[{"a": 1.5}], [{"a": 2**53 + 1}, {"a": 1}, {"a": "1.5"}]])
@example([[{"a": "1"}], [{"a": 1}, {"a": None}, {"a": {"b": None}}]])
def test_a_row_and_what_it_rescued_are_its_record(con: duckdb.DuckDBPyConnection, batches: list[list[Any]]) -> None:
    table = Table(con)
    for batch in batches:
        assert landed(table, table.take(batch)) == [exactly(without_nulls(record)) for record in batch]
        assert table.last.rejected == ()
    folded = [column.name.lower() for column in table.columns]
    assert len(folded) == len(set(folded))


@pytest.mark.slow
@RELAXED
@given(BATCHES)
def test_a_record_lands_alike_whatever_is_beside_it(con: duckdb.DuckDBPyConnection, batches: list[list[Any]]) -> None:
    """Once the columns are there, and they come in any batches."""
    table = Table(con)
    for batch in batches:
        table.take(batch)
    records = [record for batch in batches for record in batch]
    together = table.take([*records, b"no JSON", b'{"a": 1, "a": 2}'])
    assert together == [row for record in records for row in table.take([record])]


@pytest.mark.slow
@RELAXED
@given(st.lists(st.binary(max_size=12) | RECORDS.map(lambda each: json.dumps(each).encode()), max_size=8))
def test_every_record_lands_or_is_rejected_byte_for_byte(con: duckdb.DuckDBPyConnection, values: list[bytes]) -> None:
    table = Table(con, RecordFormat())
    rows = table.take(values)
    places = sorted([row["_kafka_offset"] for row in rows] + [each.offset for each in table.last.rejected])
    assert places == list(range(len(values)))
    assert all(each.value == values[each.offset] for each in table.last.rejected)
    assert table.last.landed == len(rows)


KEYED = RecordFormat(
    key=KeyFormat.TEXT,
    metadata=(Metadata.OFFSET,),
    columns=(DeclaredColumn("k", "$.k", "VARCHAR"),),
    key_columns=("k",),
)
STEPS = st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=12)


@pytest.mark.slow
@RELAXED
@given(STEPS, st.integers(0, 12))
def test_keys_end_alike_wherever_a_topic_is_split(
    con: duckdb.DuckDBPyConnection, steps: list[tuple[str, bool]], split: int
) -> None:
    truth = {key: place for place, (key, _) in enumerate(steps)}
    truth = {key: place for key, place in truth.items() if steps[place][1]}
    table, state = Table(con, KEYED), dict[str, int]()
    for first, part in ((0, steps[:split]), (split, steps[split:])):
        values = [{"k": key, "n": first + place} if there else None for place, (key, there) in enumerate(part)]
        rows = table.take(values, keys=[key for key, _ in part], first_offset=first)
        state = {key: n for key, n in state.items() if key not in {each["k"] for each in table.touched or ()}}
        state |= {row["k"]: row["n"] for row in rows}
    assert state == truth


def test_the_laws_notice_a_number_that_is_a_boolean() -> None:
    assert exactly({"a": [True]}) != exactly({"a": [1]})
    assert exactly(1.0) == exactly(1)
    assert BARE.metadata
