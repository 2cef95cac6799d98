"""Change events of Debezium become rows by key, deletes, and questions about what an update left out."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.records.parse import parse
from services.applier.records.parsed_records import PLACE_COLUMN
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat, ValueFormat
from shared.contracts.errors import DestinationError
from tests.fast.applier.records.records import BARE, NOW, Table, batch_from

ID = DeclaredColumn("id", "$.id", "BIGINT")
EVENTS = replace(BARE, value=ValueFormat.DEBEZIUM, key=KeyFormat.JSON, columns=(ID,), key_columns=("id",))
LEFT_OUT = "__debezium_unavailable_value"


def event(op: str, after: dict[str, Any] | None = None, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"table": "t"}, "op": op, "ts_ms": 1}


def with_schema(payload: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": payload}


def key_of(number: Any) -> dict[str, Any]:
    return {"id": number}


@pytest.fixture
def events(con: duckdb.DuckDBPyConnection) -> Table:
    return Table(con, EVENTS)


def take(table: Table, *given: Any, keys: list[Any] | None = None) -> list[dict[str, Any]]:
    return sorted(table.take(given, keys=keys), key=lambda row: str(row.get("id")))


@pytest.mark.parametrize("wrap", [lambda each: each, with_schema])
def test_events_become_rows_and_deletes(events: Table, wrap: Any) -> None:
    given = [
        event("r", {"id": 1, "v": "a"}),
        event("c", {"id": 2, "v": "b"}),
        event("u", {"id": 2, "v": "c"}, {"id": 2, "v": "b"}),
        event("c", {"id": 3, "v": "d"}),
        event("d", None, {"id": 3, "v": "d"}),
    ]
    rows = take(events, *(wrap(each) for each in given), None, keys=[None] * 5 + [wrap(key_of(3))])
    assert rows == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]
    assert sorted(each["id"] for each in events.touched or ()) == [1, 2, 3]
    assert (events.last.tombstones, events.last.landed, events.reasons) == (2, 6, {})
    assert events.types == {"id": "BIGINT", "v": "VARCHAR"}


def test_a_tombstone_deletes_by_its_key_alone(events: Table) -> None:
    """As after compaction, which takes the delete away."""
    given = [None, with_schema(None), event("d"), None, None]
    keys = [key_of(1), with_schema(key_of(2)), key_of(3), {"other": 1}, "x"]
    assert take(events, *given, keys=keys) == []
    assert sorted(each["id"] for each in events.touched or ()) == [1, 2, 3]
    assert events.reasons == {3: "key_missing", 4: "key_invalid"}


def test_a_delete_makes_no_column_and_rescues_nothing(events: Table) -> None:
    assert take(events, event("d", None, {"id": 1, "gone": "{AUTHOR}", "n": 10**30})) == []
    assert (events.types, events.last.rescued, events.reasons) == ({"id": "BIGINT"}, {}, {})


def test_an_update_that_changes_the_key_deletes_the_row_of_the_old_one(events: Table) -> None:
    rows = take(events, event("u", {"id": 2, "v": "b"}, {"id": 1, "v": "a"}), event("u", {"id": 3}, {"v": "no key"}))
    assert rows == [{"id": 2, "v": "b"}, {"id": 3}]
    assert sorted(each["id"] for each in events.touched or ()) == [1, 2, 3]
    assert (events.last.tombstones, events.last.landed) == (0, 2)


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "v": "flat"}, {"op": "u", "after": None}, {"op": "c", "after": [1]}, {"op": "x", "after": {"id": 1}},
        {"payload": {"id": 1}}, {"op": 1, "after": {"id": 1}}, [1], 5, "text",
    ],
)  # fmt: skip
def test_what_is_no_event_is_rejected(events: Table, value: Any) -> None:
    rows = take(events, json.dumps(value), event("c", {"id": 5}))
    assert (rows, events.reasons) == ([{"id": 5}], {0: "not_event"})


def test_what_is_no_json_is_rejected(events: Table) -> None:
    rows = take(events, b"{", b"\xff", event("c", {"id": 5}), b"", keys=[b"x", b"x", b"x", b"x"])
    assert (rows, events.reasons) == ([{"id": 5}], {0: "not_json", 1: "invalid_utf8", 3: "not_json"})


def test_a_truncate_is_never_taken_for_an_event_of_a_key(events: Table) -> None:
    with pytest.raises(DestinationError, match="offset 1 of partition 0 says that the table was truncated") as refused:
        take(events, event("c", {"id": 1}), event("t"))
    assert refused.value.type == "value_refused"


IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
IN_HEX = "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"
AS_UUID = str(uuid.UUID(bytes=hashlib.md5(LEFT_OUT.encode()).digest(), version=3))


@pytest.mark.parametrize(
    "spelled",
    [
        LEFT_OUT, IN_BASE64, IN_HEX, [LEFT_OUT], [IN_BASE64], [IN_HEX], [AS_UUID], list(LEFT_OUT.encode()),
        {LEFT_OUT: LEFT_OUT}, json.dumps({LEFT_OUT: LEFT_OUT}, separators=(",", ":")),
    ],
)  # fmt: skip
def test_a_value_that_was_left_out_comes_from_the_record_before(events: Table, spelled: Any) -> None:
    rows = take(
        events,
        event("c", {"id": 1, "n": 1, "big": "long", "other": None}),
        event("u", {"id": 1, "n": 2, "big": spelled, "other": "x"}),
        event("u", {"id": 1, "n": 3, "big": spelled, "other": spelled}),
    )
    assert rows == [{"id": 1, "n": 3, "big": "long", "other": "x"}]
    assert events.last.asking is None


def test_a_rescued_value_that_was_left_out_stays_rescued(events: Table) -> None:
    take(events, event("c", {"id": 1, "big": "text"}))
    rows = take(
        events, event("c", {"id": 1, "big": 5, "n": 10**30}), event("u", {"id": 1, "big": LEFT_OUT, "n": 10**31})
    )
    assert [json.loads(row["_rescued"]) for row in rows] == [{"big": 5, "n": 10**31}]


def test_a_required_value_may_be_left_out(con: duckdb.DuckDBPyConnection) -> None:
    big = DeclaredColumn("big", "$.big", "VARCHAR", required=True)
    within = DeclaredColumn("within", "$.doc.x", "BIGINT", required=True)
    table = Table(con, replace(EVENTS, columns=(ID, big, within)))
    doc = {"x": 5}
    rows = take(
        table, event("c", {"id": 1, "big": "a", "doc": doc}), event("u", {"id": 1, "big": LEFT_OUT, "doc": LEFT_OUT})
    )
    assert (rows, table.reasons) == ([{"id": 1, "big": "a", "within": 5, "doc": '{"x":5}'}], {})


def test_the_destination_is_asked_for_what_no_record_has(events: Table) -> None:
    rows = take(
        events,
        event("u", {"id": 1, "n": 1, "big": LEFT_OUT}),
        event("u", {"id": 2, "n": 1}),
        event("d", before={"id": 3}),
    )
    assert [row.get(PLACE_COLUMN) for row in rows] == [0, None]
    assert rows[0] == {"id": 1, "n": 1, PLACE_COLUMN: 0}


@pytest.mark.parametrize(
    "before",
    [
        [event("d", None, {"id": 1})],
        [event("c", {"id": 1, "big": LEFT_OUT})],
        [event("u", {"id": 1, "big": LEFT_OUT}, {"id": 7})],
    ],
)
def test_nothing_is_taken_from_beyond_what_voids_it(events: Table, before: list[Any]) -> None:
    """A key that was used before is another row."""
    later = event("u", {"id": 1, "n": 2, "big": LEFT_OUT})
    take(events, event("c", {"id": 1, "big": "of another row"}), *before, later)
    assert events.reasons[len(before) + 1] == "left_out"
    assert events.last.asking is None


def test_a_record_that_the_destination_can_not_complete_is_rejected_and_the_one_before_it_counts(
    con: duckdb.DuckDBPyConnection,
) -> None:
    batch = batch_from([event("c", {"id": 1, "n": 1}), event("u", {"id": 2, "big": LEFT_OUT})])
    parsed = parse(con, batch, EVENTS, (), NOW, incomplete=[1])
    try:
        assert [(each.offset, each.reason) for each in parsed.rejected] == [(1, "left_out")]
        assert (parsed.asking, parsed.landed) == (None, 1)
    finally:
        parsed.drop()


@pytest.mark.parametrize("change", [{"key": KeyFormat.NONE}, {"key_columns": ()}])
def test_events_need_a_key(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="need key columns, and keys with fields"):
        replace(EVENTS, **change)


def test_a_value_that_only_holds_the_placeholder_is_itself(events: Table) -> None:
    text = f"about {LEFT_OUT}"
    rows = take(events, event("u", {"id": 1, "v": text, "list": [LEFT_OUT, "x"]}))
    assert (rows[0]["v"], json.loads(rows[0]["list"]), events.last.asking) == (text, [LEFT_OUT, "x"], None)


def test_a_key_that_holds_the_placeholder_is_none(events: Table) -> None:
    assert take(events, event("u", {"id": LEFT_OUT, "n": 1})) == []
    assert events.reasons == {0: "key_missing"}


def test_numbers_and_names_are_those_of_the_event(events: Table) -> None:
    fields = '"id":1,"a":12345678901234567890123,"a\\"b":1.50,"z":[1, {"k":null}]'
    raw = f'{{"op":"u","after":{{{fields},"big":"{LEFT_OUT}"}}}}'
    rows = take(events, event("c", {"id": 1, "big": "x"}), raw)
    assert rows[0]['a"b'] == 1.5
    assert rows[0]["z"] == '[1,{"k":null}]'
    assert json.loads(rows[0]["_rescued"]) == {"a": 12345678901234567890123}


def test_by_the_record_s_own_key(con: duckdb.DuckDBPyConnection) -> None:
    form = RecordFormat(
        value=ValueFormat.DEBEZIUM, key=KeyFormat.JSON, metadata=(Metadata.KEY,), key_columns=("_kafka_key",)
    )
    table = Table(con, form)
    rows = table.take(
        [event("c", {"id": 1, "v": "a"}), event("u", {"id": 1, "v": "b"}), event("d", before={"id": 2})],
        keys=[with_schema(key_of(1)), key_of(1), key_of(2)],
    )
    assert rows == [{"_kafka_key": '{"id":1}', "id": 1, "v": "b"}]


def test_a_row_is_asked_for_by_its_key_columns_in_their_order(con: duckdb.DuckDBPyConnection) -> None:
    """Which is that of the file, not that of the columns: a row of the swapped key would answer."""
    columns = tuple(DeclaredColumn(name, f"$.{name}", "BIGINT") for name in ("a", "b"))
    form, after = replace(EVENTS, columns=columns, key_columns=("b", "a")), {"a": 1, "b": 2, "big": LEFT_OUT}
    parsed = parse(con, batch_from([event("u", after)], keys=[{"a": 1, "b": 2}]), form, (), NOW)
    try:
        assert parsed.asking is not None
        assert con.execute(f"SELECT k0, k1 FROM {parsed.asking.name}").fetchall() == [(2, 1)]
    finally:
        parsed.drop()
