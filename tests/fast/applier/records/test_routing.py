"""Whose a record is, told before it is a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.records.parse import parse
from services.applier.records.record_format import DeclaredColumn
from services.applier.records.routing import route
from tests.fast.applier.records.records import BARE, NOW, batch_from

TENANT = DeclaredColumn("tenant", "$.tenant", "VARCHAR")
BY_TEXT = replace(BARE, columns=(TENANT,))


def by(declared: str, path: str = "$.tenant") -> Any:
    return replace(BARE, columns=(DeclaredColumn("tenant", path, declared),))


def test_records_are_told_apart_by_the_text_of_their_value_in_their_order(con: duckdb.DuckDBPyConnection) -> None:
    batch = batch_from([{"tenant": "a", "n": 1}, {"tenant": "b"}, {"n": 2, "tenant": "a"}, '{"tenant": "\\u0061"}'])
    routed = route(con, batch, BY_TEXT, "tenant")
    assert dict(routed.places) == {"a": [0, 2, 3], "b": [1]}
    mine = routed.of("a")
    assert mine is not None
    assert (mine.offsets.to_pylist(), len(mine.values), routed.of("c")) == ([0, 2, 3], 3, None)
    assert (routed.unreadable, routed.nowhere) == ((), 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no JSON", "not_json"),
        (b"\xff", "invalid_utf8"),
        ("[1]", "not_object"),
        ({"tenant": 5}, "type_mismatch"),
        ({"tenant": {"a": 1}}, "type_mismatch"),
    ],
)
def test_a_record_whose_value_can_not_be_told_may_be_anybodys(
    con: duckdb.DuckDBPyConnection, value: Any, reason: str
) -> None:
    routed = route(con, batch_from([{"tenant": "a"}, value]), BY_TEXT, "tenant")
    assert [(each.offset, each.reason.value) for each in routed.unreadable] == [(1, reason)]
    assert (dict(routed.places), routed.nowhere) == ({"a": [0]}, 0)


def test_a_record_without_a_value_is_nobodys(con: duckdb.DuckDBPyConnection) -> None:
    routed = route(con, batch_from([{"tenant": None}, {"n": 1}, None, {}]), BY_TEXT, "tenant")
    assert (dict(routed.places), routed.unreadable, routed.nowhere) == ({}, (), 4)


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("BIGINT", 7, "7"), ("BIGINT", "7", None), ("BOOLEAN", True, "true"), ("DATE", "2026-01-02", "2026-01-02"),
        ("UUID", "0B0E5F8A-0000-0000-0000-000000000001", "0b0e5f8a-0000-0000-0000-000000000001"),
    ],
)  # fmt: skip
def test_values_have_the_text_that_their_type_gives_them(
    con: duckdb.DuckDBPyConnection, declared: str, value: Any, text: str | None
) -> None:
    routed = route(con, batch_from([{"tenant": value}]), by(declared), "tenant")
    if text is None:
        assert [each.reason.value for each in routed.unreadable] == ["type_mismatch"]
    else:
        assert list(routed.places) == [text]


def test_a_value_within_a_field_tells_too(con: duckdb.DuckDBPyConnection) -> None:
    values = [{"of": {"tenant": "a"}}, {"of": {"tenant": 1}}, {"of": {}}]
    routed = route(con, batch_from(values), by("VARCHAR", "$.of.tenant"), "tenant")
    assert (dict(routed.places), routed.nowhere) == ({"a": [0]}, 1)
    assert [each.offset for each in routed.unreadable] == [1]


STRANGE = (
    {"tenant": "a", "x": float("nan")}, '{"tenant": "a", "tenant": "b"}', {"tenant": "a", "t": "{AUTHOR}"},
    {"tenant": "x" * 2_000}, {"tenant": ""}, {"tenant": "é\u0000"}, {"tenant": "A"}, {"Tenant": "a"},
    '{"tenant": "a"} ', '{"tenant": "b", "id": 1e400}',
)  # fmt: skip


def test_every_record_goes_where_its_row_says_and_no_row_is_left_out(con: duckdb.DuckDBPyConnection) -> None:
    """Split first and then parsed, or parsed as a whole: the rows of a tenant are the same."""
    form = replace(BY_TEXT, max_record_bytes=1_000)
    batch = batch_from([{"tenant": "a", "n": 1}, *STRANGE, {"tenant": "b", "n": "x"}, None, {"n": 3}])
    routed, whole = route(con, batch, form, "tenant"), parse(con, batch, form, (), NOW)
    sql = "SELECT _kafka_offset FROM {} WHERE tenant = $value ORDER BY ALL"
    told = {
        value: con.execute(sql.format(whole.rows), {"value": value}).fetchall() for value in ("a", "b", "A", "", "é\0")
    }
    nobodys = con.execute(f"SELECT count(*) FROM {whole.rows} WHERE tenant IS NULL").fetchall()[0][0]
    whole.drop()
    rejected = 0
    for value in routed.places:
        mine = routed.of(value)
        assert mine is not None
        parsed = parse(con, mine, form, (), NOW)
        assert con.execute(sql.format(parsed.rows), {"value": value}).fetchall() == told.get(value, [])
        assert con.execute(f"SELECT count(*) FROM {parsed.rows}").fetchall()[0][0] == len(told.get(value, []))
        rejected += len(parsed.rejected)
        parsed.drop()
    assert rejected + len(routed.unreadable) == len(whole.rejected)
    assert routed.nowhere == nobodys
