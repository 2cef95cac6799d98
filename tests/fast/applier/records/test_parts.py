"""Records that come in parts become what they become at once, whether or not they are kept until the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.applier.records.parse import ColumnsChange, RecordParser, parse
from services.applier.records.parsed_records import ParsedRecords
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat, ValueFormat
from shared.lake.catalog.reader import Column
from tests.fast.applier.records.records import BARE, NOW, batch_from
from tests.fast.applier.records.test_any_records import RECORDS, RELAXED

ODD = [b"no JSON", b"[1]", b'{"a": 1, "a": 2}', b"\xff", None, b'{"b": NaN}', b'{"a": "{SNAPSHOT_ID}"}']
VALUES = st.lists(RECORDS | st.sampled_from(ODD), max_size=10)

KEYED = RecordFormat(
    key=KeyFormat.TEXT,
    metadata=(Metadata.OFFSET,),
    columns=(DeclaredColumn("k", "$.a", "VARCHAR"), DeclaredColumn("b", "$.b", "BIGINT", required=True)),
    key_columns=("k",),
)
WIDE_ONE = RecordFormat(
    metadata=(Metadata.OFFSET,),
    columns=tuple(DeclaredColumn(f"c{n}", f"$.c{n}", "JSON" if n % 2 else "BIGINT") for n in range(40)),
)
"""More columns than are looked for without asking, so that each part leaves out others."""


def split(batch: RecordBatch, at: Sequence[int]) -> list[RecordBatch]:
    ends = sorted({0, len(batch), *(each % (len(batch) + 1) for each in at)})
    return [batch.taken(range(first, end)) for first, end in pairwise(ends)]


def said(con: duckdb.DuckDBPyConnection, parsed: ParsedRecords) -> dict[str, Any]:
    """All that a reading takes from it."""
    names = ("columns", "new_columns", "promotions", "rejected", "landed", "tombstones", "rescued")
    found = {name: getattr(parsed, name) for name in names}
    for name, shown in (("rows", parsed.rows), ("touched", parsed.touched)):
        found[name] = None if shown is None else con.execute(f"SELECT * FROM {shown} ORDER BY ALL").fetchall()
    parsed.drop()
    return found


def in_parts(
    con: duckdb.DuckDBPyConnection, parts: Sequence[RecordBatch], form: RecordFormat, present: Sequence[Column],
    *, lets_go: bool
) -> dict[str, Any]:  # fmt: skip
    parser = RecordParser(con, form, present, NOW, lets_go=lets_go)
    try:
        for part in parts:
            parser.add(part)
        return said(con, parser.finish())
    finally:
        parser.drop()


@pytest.mark.slow
@pytest.mark.parametrize("form", [BARE, KEYED], ids=["appended", "keyed"])
@RELAXED
@given(VALUES, VALUES, st.lists(st.integers(0, 10), max_size=4))
def test_records_in_parts_are_the_same_rows(
    con: duckdb.DuckDBPyConnection, form: RecordFormat, before: list[Any], values: list[Any], at: list[int]
) -> None:
    first = said(con, parse(con, batch_from(before), form, (), NOW))
    batch = batch_from(values, keys=["x", "y"] * (len(values) // 2) + ["x"] * (len(values) % 2))
    at_once = said(con, parse(con, batch, form, first["columns"], NOW))
    parts = split(batch, at)
    assert in_parts(con, parts, form, first["columns"], lets_go=False) == at_once
    if at_once["new_columns"] or at_once["promotions"]:
        return
    assert in_parts(con, parts, form, first["columns"], lets_go=True) == at_once


@pytest.mark.parametrize("lets_go", [True, False])
@pytest.mark.parametrize("kind", [ValueFormat.JSON, ValueFormat.TEXT, ValueFormat.BYTES])
def test_and_so_they_are_in_every_format(con: duckdb.DuckDBPyConnection, kind: ValueFormat, lets_go: bool) -> None:
    form, batch = RecordFormat(value=kind), batch_from([{"a": 1}, b"\xff", None, {"a": 2}, b"{", {"a": 3}])
    columns = said(con, parse(con, batch, form, (), NOW))["columns"]
    at_once = said(con, parse(con, batch, form, columns, NOW))
    assert in_parts(con, split(batch, [1, 2, 4]), form, columns, lets_go=lets_go) == at_once


@pytest.mark.parametrize("lets_go", [True, False])
def test_and_whatever_columns_a_part_has_nothing_for(con: duckdb.DuckDBPyConnection, lets_go: bool) -> None:
    batch = batch_from([{"c0": 1}, {"c1": {"x": 1}}, {"c1": "text", "c2": 2}, {}, {"c39": [1], "c38": "no number"}])
    columns = said(con, parse(con, batch, WIDE_ONE, (), NOW))["columns"]
    at_once = said(con, parse(con, batch, WIDE_ONE, columns, NOW))
    assert in_parts(con, split(batch, [1, 2, 3, 4]), WIDE_ONE, columns, lets_go=lets_go) == at_once


@pytest.mark.parametrize("value", [{"a": 2**40}, {"a": 1, "new": True}], ids=["wider", "new"])
def test_records_that_were_let_go_are_asked_for_again_where_columns_change(
    con: duckdb.DuckDBPyConnection, value: Any
) -> None:
    present = (Column("_kafka_offset", "BIGINT"), Column("a", "INTEGER"))
    parser = RecordParser(con, BARE, present, NOW, lets_go=True)
    try:
        parser.add(batch_from([{"a": 1}]))
        parser.add(batch_from([value], first_offset=1))
        with pytest.raises(ColumnsChange):
            parser.finish()
    finally:
        parser.drop()


def test_no_record_at_all_is_no_row(con: duckdb.DuckDBPyConnection) -> None:
    present = (Column("_kafka_offset", "BIGINT"), Column("a", "BIGINT"))
    found = in_parts(con, [], BARE, present, lets_go=True)
    assert (found["rows"], found["landed"], found["columns"]) == ([], 0, present)
