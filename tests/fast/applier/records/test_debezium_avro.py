"""Change events of Debezium by the schemas of a registry: rows, deletes, the types that Connect names, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pytest

from services.applier.records.parsed_records import PLACE_COLUMN
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, ValueFormat
from shared.contracts.errors import DestinationError, SourceError
from shared.kafka.schema_registry import RegisteredSchema
from tests.fast.applier.records.encoded_events import ENCODINGS, EVENT, FIELDS, KEY, envelope, in_avro, key_schema
from tests.fast.applier.records.records import Table
from tests.fast.applier.records.test_avro import Schemas, encoded, record, wire
from tests.fast.applier.records.test_debezium import AS_UUID, EVENTS, LEFT_OUT, event, key_of

AVRO = replace(EVENTS, encoding=ValueFormat.AVRO, key=KeyFormat.AVRO)
HOW = ENCODINGS["avro"]


@pytest.fixture
def events(con: duckdb.DuckDBPyConnection) -> Table:
    return Table(con, AVRO)


def take(table: Table, *given: Any, keys: list[Any] | None = None, schemas: Any = None) -> list[dict[str, Any]]:
    """Events as dictionaries, anything else as it is."""
    values = [HOW.write_value(each) if isinstance(each, dict) else each for each in given]
    rows = table.take(values, keys=keys, schemas=schemas or HOW.schemas())
    return sorted(rows, key=lambda row: str(row.get("id")))


def test_events_become_rows_and_deletes(events: Table) -> None:
    given = [
        event("r", {"id": 1, "big": "a"}),
        event("c", {"id": 2, "n": 5}),
        event("u", {"id": 2, "n": 6}, {"id": 2}),
        event("c", {"id": 3}),
        event("d", None, {"id": 3}),
        event("u", {"id": 5, "n": 1}, {"id": 4}),
    ]
    rows = take(events, *given, None, keys=[None] * 6 + [HOW.write_key(key_of(3))])
    assert rows == [{"id": 1, "big": "a"}, {"id": 2, "n": 6}, {"id": 5, "n": 1}]
    assert sorted(each["id"] for each in events.touched or ()) == [1, 2, 3, 4, 5]
    assert (events.last.tombstones, events.last.landed, events.reasons) == (2, 7, {})
    assert events.types == {"id": "BIGINT", "big": "VARCHAR", "n": "BIGINT"}


def test_a_tombstone_deletes_by_its_key_alone(events: Table) -> None:
    other = record(("other", "long"))
    schemas = HOW.schemas()
    schemas.by_id[7] = RegisteredSchema("AVRO", json.dumps(other))
    keys = [HOW.write_key(key_of(1)), wire(7, encoded(other, {"other": 1})), b"plain", wire(9, b"\x02"), None]
    assert take(events, *[None] * 5, keys=keys, schemas=schemas) == []
    assert [each["id"] for each in events.touched or ()] == [1]
    assert events.reasons == {1: "key_missing", 2: "wire_format", 3: "schema_unknown", 4: "key_missing"}


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
DECIMAL = named(
    "bytes", f"{CONNECT}Decimal", scale=2, precision=10, logicalType="decimal",
    **{"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
)  # fmt: skip
BARE_DECIMAL = {name: each for name, each in DECIMAL.items() if name not in ("scale", "precision", "logicalType")}
NO_PRECISION = {**BARE_DECIMAL, "connect.parameters": {"scale": "2"}}
VARIABLE = {
    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}  # fmt: skip
POINT = record(("x", "double"), ("wkb", "bytes"), name="Point")
ZONED, NANO_TIME = named("string", f"{DEBEZIUM}ZonedTimestamp"), named("long", f"{DEBEZIUM}NanoTime")
UTC_TIMESTAMP = "TIMESTAMP WITH TIME ZONE"

TYPES: list[tuple[Any, Any, str, Any]] = [
    (named("int", f"{DEBEZIUM}Date"), -1, "DATE", date(1969, 12, 31)),
    (named("int", f"{DEBEZIUM}Time"), 1, "TIME", time(0, 0, 0, 1000)),
    (named("long", f"{DEBEZIUM}MicroTime"), 1, "TIME", time(0, 0, 0, 1)),
    (NANO_TIME, 1_000, "TIME", time(0, 0, 0, 1)),
    (NANO_TIME, 60_000_000_000, "TIME", time(0, 1)),
    (named("long", f"{DEBEZIUM}Timestamp"), 1, "TIMESTAMP", datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (named("long", f"{DEBEZIUM}MicroTimestamp"), -1, "TIMESTAMP", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (named("long", f"{DEBEZIUM}NanoTimestamp"), 2_000, "TIMESTAMP", datetime(1970, 1, 1, 0, 0, 0, 2)),
    (ZONED, "2026-11-26T12:00:00.5Z", UTC_TIMESTAMP, datetime(2026, 11, 26, 12, 0, 0, 500000, tzinfo=UTC)),
    (named("int", f"{DEBEZIUM}Year"), 2026, "BIGINT", 2026),
    (named("string", "io.debezium.data.Uuid"), str(UUID(int=5)), "UUID", UUID(int=5)),
    (named("string", "io.debezium.data.Json"), '{"a": 1}', "VARCHAR", '{"a": 1}'),
    (named("string", "io.debezium.data.Enum"), "x", "VARCHAR", "x"),
    (named("bytes", "io.debezium.data.Bits"), b"\x05", "BLOB", b"\x05"),
    (named("int", f"{CONNECT}Date", logicalType="date"), date(1970, 1, 2), "DATE", date(1970, 1, 2)),
    (named("int", f"{CONNECT}Time", logicalType="time-millis"), time(1), "TIME", time(1)),
    (named("long", f"{CONNECT}Timestamp", logicalType="timestamp-millis"), datetime(2026, 1, 2, tzinfo=UTC),
     "TIMESTAMP", datetime(2026, 1, 2)),
    (DECIMAL, Decimal("-1.25"), "DECIMAL(10,2)", Decimal("-1.25")),
    (BARE_DECIMAL, b"\x83", "DECIMAL(10,2)", Decimal("-1.25")),
    (NO_PRECISION, b"\x7d", "VARCHAR", "1.25"),
    (VARIABLE, {"scale": 3, "value": b"\x83"}, "VARCHAR", "-0.125"),
    (VARIABLE, {"scale": -2, "value": b"\x05"}, "VARCHAR", "500"),
    (VARIABLE, {"scale": -2, "value": b"\x00"}, "VARCHAR", "0"),
    (POINT, {"x": 0.5, "wkb": b"x"}, "JSON", '{"x":0.5,"wkb":{"$base64":"eA=="}}'),
    ({"type": "array", "items": ["null", named("int", f"{DEBEZIUM}Date")]}, [1, None], "JSON", '["1970-01-02",null]'),
]  # fmt: skip


def one_of(declared: Any, value: Any) -> tuple[bytes, Schemas]:
    """An event whose row has that value in ``v``."""
    whole = envelope({"id": "long", "v": declared})
    schemas = Schemas(key_schema(FIELDS), whole)
    return wire(EVENT, encoded(whole, in_avro(event("c", {"id": 1, "v": value})))), schemas


@pytest.mark.parametrize(("declared", "value", "column", "found"), TYPES, ids=range(len(TYPES)))
def test_each_type_of_debezium_has_its_column(
    events: Table, declared: Any, value: Any, column: str, found: Any
) -> None:
    data, schemas = one_of(declared, value)
    assert take(events, data, schemas=schemas) == [{"id": 1, "v": found}]
    assert events.types["v"] == column


@pytest.mark.parametrize(
    ("declared", "value", "rescued"),
    [
        (named("long", f"{DEBEZIUM}MicroTime"), 86_400_000_000, 86_400_000_000),
        (named("long", f"{DEBEZIUM}MicroTime"), -1, -1),
        (NANO_TIME, 1, "00:00:00.000000001"),
        (NANO_TIME, -1, -1),
        (named("long", f"{DEBEZIUM}NanoTimestamp"), 1, "1970-01-01T00:00:00.000000001"),
        (named("int", f"{DEBEZIUM}Date"), 2**31 - 1, 2**31 - 1),
        (ZONED, "infinity", "infinity"),
        (VARIABLE, {"scale": 2**30, "value": b"\x05"}, {"scale": 2**30, "value": {"$base64": "BQ=="}}),
    ],
)
def test_what_no_column_of_its_type_holds_is_rescued(events: Table, declared: Any, value: Any, rescued: Any) -> None:
    data, schemas = one_of(declared, value)
    (row,) = take(events, data, schemas=schemas)
    assert (json.loads(row["_rescued"]), row["id"], events.reasons) == ({"v": rescued}, 1, {})


def test_a_name_of_connect_on_another_type_than_its_own_means_nothing(con: duckdb.DuckDBPyConnection) -> None:
    odd = [
        named("string", f"{DEBEZIUM}Date"),
        named("long", f"{CONNECT}Decimal"),
        {"type": "long", "connect.name": [1]},
    ]
    for declared, value, column in zip(odd, ["x", 5, 5], ["VARCHAR", "BIGINT", "BIGINT"], strict=True):
        data, schemas = one_of(declared, value)
        table = Table(con, AVRO)
        assert take(table, data, schemas=schemas) == [{"id": 1, "v": value}]
        assert table.types["v"] == column


def test_a_key_of_a_named_type_is_that_of_its_row(con: duckdb.DuckDBPyConnection) -> None:
    """A tombstone spells its key as the event before it spells the row's."""
    day, fields = DeclaredColumn("day", "$.day", "DATE"), {"day": named("int", f"{DEBEZIUM}Date")}
    table = Table(con, replace(AVRO, columns=(day,), key_columns=("day",)))
    whole, key = envelope(fields, ("day",)), key_schema(fields, ("day",))
    created = wire(EVENT, encoded(whole, in_avro(event("c", {"day": 3}))))
    keys = [None, wire(KEY, encoded(key, {"day": 3}))]
    assert take(table, created, None, keys=keys, schemas=Schemas(key, whole)) == []
    assert (table.touched, table.reasons) == ([{"day": date(1970, 1, 4)}], {})


@pytest.mark.parametrize(
    ("declared", "placeholder", "before"),
    [
        ("string", LEFT_OUT, "long"),
        ("bytes", LEFT_OUT.encode(), b"long"),
        (named("string", "io.debezium.data.Json"), LEFT_OUT, "{}"),
        ({"type": "array", "items": "string"}, [LEFT_OUT], ["long"]),
        ({"type": "array", "items": "bytes"}, [LEFT_OUT.encode()], [b"long"]),
        ({"type": "array", "items": named("string", "io.debezium.data.Uuid")}, [AS_UUID], [str(UUID(int=1))]),
        ({"type": "array", "items": "long"}, list(LEFT_OUT.encode()), [1]),
        ({"type": "map", "values": "string"}, {LEFT_OUT: LEFT_OUT}, {"a": "b"}),
    ],
)
def test_a_value_that_was_left_out_comes_from_the_record_before_or_the_destination(
    events: Table, declared: Any, placeholder: Any, before: Any
) -> None:
    whole = envelope({"id": "long", "n": "long", "big": declared})

    def written(number: int, n: int, big: Any) -> bytes:
        after = {"id": number, "n": n, "big": big}
        return wire(EVENT, encoded(whole, in_avro(event("c" if big == before else "u", after))))

    given = [written(1, 1, before), written(1, 2, placeholder), written(2, 1, placeholder)]
    first, second = take(events, *given, schemas=Schemas(key_schema(FIELDS), whole))
    assert (first["n"], "big" in first, first.get(PLACE_COLUMN)) == (2, True, None)
    assert second == {"id": 2, "n": 1, PLACE_COLUMN: 2}


def test_a_value_that_only_holds_the_placeholder_is_itself(events: Table) -> None:
    whole = envelope({"id": "long", "v": "bytes"})
    data = LEFT_OUT.encode() + b"!!"
    value = wire(EVENT, encoded(whole, in_avro(event("u", {"id": 1, "v": data}))))
    assert take(events, value, schemas=Schemas("null", whole)) == [{"id": 1, "v": data}]
    assert events.last.asking is None


FLAT = record(("id", "long"), ("op", "string"))
NO_ROW = record(("op", "string"), ("before", ["null", "long"]), ("after", ["null", "long"]))
WRAPPED = record(("payload", record(("op", "string"), ("after", ["null", FLAT]), name="p")), name="w")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (FLAT, {"id": 1, "op": "c"}),
        (NO_ROW, {"op": "u", "after": 5}),
        (WRAPPED, {"payload": {"op": "c", "after": {"id": 1, "op": "c"}}}),
        (record(("payload", ["null", "string"])), {"payload": None}),
        (envelope(FIELDS), in_avro(event("x", {"id": 1}))),
        (envelope(FIELDS), in_avro(event("u", None, {"id": 1}))),
        ("long", 5),
        ("null", None),
    ],
)
def test_what_is_no_event_is_rejected(events: Table, schema: Any, value: Any) -> None:
    """An event within ``payload`` is JSON's own; a ``payload`` of null would be a tombstone there."""
    schemas = HOW.schemas()
    schemas.by_id[7] = RegisteredSchema("AVRO", json.dumps(schema))
    rows = take(events, wire(7, encoded(schema, value)), event("c", {"id": 5}), schemas=schemas)
    assert (rows, events.reasons) == ([{"id": 5}], {0: "not_event"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "wire_format"),
        (b'{"op":"c","after":{"id":1}}', "wire_format"),
        (b"\x01\x00\x00\x00\x02\x02", "wire_format"),
        (wire(99, b"\x02"), "schema_unknown"),
        (wire(EVENT, b"\x00"), "undecodable"),
        (wire(8, b"\x02"), "schema_unusable"),
    ],
)
def test_what_is_not_in_avro_is_rejected_alone(events: Table, value: bytes, reason: str) -> None:
    schemas = HOW.schemas()
    schemas.by_id[8] = RegisteredSchema("PROTOBUF", "")
    assert take(events, value, event("c", {"id": 5}), schemas=schemas) == [{"id": 5}]
    assert events.reasons == {0: reason}
    assert events.last.rejected[0].value == value


def test_a_truncate_is_never_taken_for_an_event_of_a_key(events: Table) -> None:
    with pytest.raises(DestinationError, match="offset 1 of partition 0 says that the table was truncated"):
        take(events, event("c", {"id": 1}), event("t"))


def test_a_registry_that_does_not_answer_rejects_no_event(events: Table) -> None:
    class Down:
        def schema(self, number: int) -> RegisteredSchema | None:
            raise SourceError("source_unreachable", f"no {number}")

    with pytest.raises(SourceError):
        take(events, event("c", {"id": 1}), schemas=Down())


def test_rows_follow_a_schema_that_changes(events: Table) -> None:
    """Of an older schema a row lacks the field, of a newer one it has the column."""
    newer = envelope({**FIELDS, "at": named("long", f"{DEBEZIUM}MicroTimestamp")})
    schemas = HOW.schemas()
    schemas.by_id[3] = RegisteredSchema("AVRO", json.dumps(newer))
    second = wire(3, encoded(newer, in_avro(event("c", {"id": 2, "at": 0}))))
    rows = take(events, event("c", {"id": 1, "n": 1}), second, schemas=schemas)
    assert rows == [{"id": 1, "n": 1}, {"id": 2, "at": datetime(1970, 1, 1)}]
    assert sorted(schemas.asked) == [EVENT, 3]


@pytest.mark.parametrize("value", ["json", "json_schema", "avro", "protobuf"])
@pytest.mark.parametrize("key", ["json", "json_schema", "avro", "protobuf"])
def test_values_and_keys_may_be_encoded_each_in_its_way(con: duckdb.DuckDBPyConnection, value: str, key: str) -> None:
    values, keys = ENCODINGS[value], ENCODINGS[key]
    schemas, of_keys = values.schemas(), keys.schemas()
    schemas.by_id = {**schemas.by_id, **({KEY: of_keys.by_id[KEY]} if of_keys.by_id else {})}
    table = Table(con, replace(EVENTS, encoding=values.value, key=keys.key, metadata=(Metadata.OFFSET, Metadata.KEY)))
    given = [values.write_value(event("c", {"id": 1, "n": 5, "big": "x"})), None]
    rows = table.take(given, keys=[keys.write_key(key_of(number)) for number in (1, 2)], schemas=schemas)
    assert [(row["id"], row["n"], row["big"], json.loads(row["_kafka_key"])) for row in rows] == [
        (1, 5, "x", {"id": 1})
    ]
    assert (table.last.tombstones, table.reasons) == (1, {})
