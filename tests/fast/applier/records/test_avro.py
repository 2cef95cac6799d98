"""Records in Avro, named by the id of their schema in a registry, become rows exactly; fastavro writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import fastavro
import pytest

from services.applier.records.avro import avro_decoder
from services.applier.records.decoder import Undecodable, UnusableSchema
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, ValueFormat
from shared.contracts.errors import SourceError
from shared.kafka.schema_registry import RegisteredSchema
from tests.fast.applier.records.records import BARE, Table

AVRO = replace(BARE, value=ValueFormat.AVRO)
ID = DeclaredColumn("id", "$.id", "BIGINT")


class Schemas:
    """Those of a registry, by their ids."""

    def __init__(self, *texts: Any, kind: str = "AVRO") -> None:
        self.by_id = {number: RegisteredSchema(kind, json.dumps(text)) for number, text in enumerate(texts, 1)}
        self.asked: list[int] = []

    def schema(self, number: int) -> RegisteredSchema | None:
        self.asked.append(number)
        return self.by_id.get(number)


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": declared} for n, declared in fields]}


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def wire(number: int, data: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + data


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "f", "size": size}


NOON = datetime(2026, 11, 26, 12, 0, 0, 123000, tzinfo=UTC)

TYPES: list[tuple[Any, Any, str, Any]] = [
    ("boolean", True, "BOOLEAN", True),
    ("int", -5, "BIGINT", -5),
    ("long", -(2**63), "BIGINT", -(2**63)),
    ("long", 2**63 - 1, "BIGINT", 2**63 - 1),
    ("float", 0.5, "DOUBLE", 0.5),
    ("double", 1e308, "DOUBLE", 1e308),
    ("double", 5e-324, "DOUBLE", 5e-324),
    ("string", 'ä"\\\x01', "VARCHAR", 'ä"\\\x01'),
    ("bytes", b"\x00\xff", "BLOB", b"\x00\xff"),
    (fixed(3), b"abc", "BLOB", b"abc"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "VARCHAR", "B"),
    (logical("bytes", "decimal", precision=38, scale=3), Decimal("-1.250"), "DECIMAL(38,3)", Decimal("-1.250")),
    (logical(fixed(4), "decimal", precision=9, scale=0), Decimal(7), "DECIMAL(9,0)", Decimal(7)),
    (logical("int", "date"), date(1969, 12, 31), "DATE", date(1969, 12, 31)),
    (logical("int", "time-millis"), time(23, 59, 59, 999000), "TIME", time(23, 59, 59, 999000)),
    (logical("long", "time-micros"), time(0, 0, 0, 1), "TIME", time(0, 0, 0, 1)),
    (logical("long", "timestamp-millis"), NOON, "TIMESTAMP WITH TIME ZONE", NOON),
    (logical("long", "timestamp-micros"), datetime(1, 1, 1, tzinfo=UTC), "TIMESTAMP WITH TIME ZONE",
     datetime(1, 1, 1, tzinfo=UTC)),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_123_000, "TIMESTAMP WITH TIME ZONE",
     datetime(1970, 1, 1, 0, 16, 40, 123, tzinfo=UTC)),
    (logical("long", "local-timestamp-micros"), datetime(2026, 1, 2, 3, 4, 5, 6), "TIMESTAMP",
     datetime(2026, 1, 2, 3, 4, 5, 6)),
    (logical("string", "uuid"), UUID(int=5), "UUID", UUID(int=5)),
    (logical("int", "unknown"), 5, "BIGINT", 5),
    (["null", "long"], 5, "BIGINT", 5),
    (["string", "null"], "x", "VARCHAR", "x"),
    (["null", logical("int", "date")], date(2026, 1, 1), "DATE", date(2026, 1, 1)),
    (["int", "long"], 5, "BIGINT", 5),
    (["null", "int", "string"], "x", "JSON", '"x"'),
    (["null", "int", "string"], 7, "JSON", "7"),
    ({"type": "array", "items": ["null", "long"]}, [1, None], "JSON", "[1,null]"),
    ({"type": "map", "values": "bytes"}, {"a b": b"x"}, "JSON", '{"a b":{"$base64":"eA=="}}'),
    (record(("x", record(("y", "string"), name="inner")), name="outer"), {"x": {"y": "z"}}, "JSON", '{"x":{"y":"z"}}'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "column", "found"), TYPES, ids=range(len(TYPES)))
def test_each_type_has_its_column(
    con: duckdb.DuckDBPyConnection, schema: Any, value: Any, column: str, found: Any
) -> None:
    whole = record(("v", schema))
    table = Table(con, AVRO)
    rows = table.take([wire(1, encoded(whole, {"v": value}))], schemas=Schemas(whole))
    assert (rows, table.types) == ([{"v": found}], {"v": column})


@pytest.mark.parametrize(
    ("schema", "value", "rescued"),
    [
        ("double", float("nan"), "NaN"),
        ("float", float("-inf"), "-Infinity"),
        (logical("int", "date"), 2**31 - 1, 2**31 - 1),
        (logical("long", "timestamp-millis"), 2**62, 2**62),
        (logical("int", "time-millis"), -1, -1),
        (logical("string", "uuid"), "no uuid", "no uuid"),
        (logical("bytes", "decimal", precision=4, scale=2), b"\x7f\xff\xff", "83886.07"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_123_001, "1970-01-01T00:16:40.000123001+00:00"),
    ],
)
def test_what_no_column_of_its_type_holds_is_rescued(
    con: duckdb.DuckDBPyConnection, schema: Any, value: Any, rescued: Any
) -> None:
    plain = {key: each for key, each in schema.items() if key != "logicalType"} if isinstance(schema, dict) else schema
    whole = record(("v", schema), ("id", "int"))
    data = encoded(record(("v", plain), ("id", "int")), {"v": value, "id": 1})
    table = Table(con, AVRO)
    (row,) = table.take([wire(1, data)], schemas=Schemas(whole))
    assert (json.loads(row["_rescued"]), row["id"], table.reasons) == ({"v": rescued}, 1, {})


def test_a_field_that_is_only_null_has_no_column_yet_and_then_that_of_its_schema(
    con: duckdb.DuckDBPyConnection,
) -> None:
    whole = record(("id", "int"), ("at", ["null", logical("int", "date")]))
    schemas, table = Schemas(whole), Table(con, AVRO)
    table.take([wire(1, encoded(whole, {"id": 1}))], schemas=schemas)
    assert table.types == {"id": "BIGINT"}
    table.take([wire(1, encoded(whole, {"id": 1, "at": date(2026, 1, 1)}))], schemas=schemas)
    assert table.types == {"id": "BIGINT", "at": "DATE"}


def test_schemas_of_one_batch_agree_on_types_whatever_their_order(con: duckdb.DuckDBPyConnection) -> None:
    def money(precision: int, scale: int) -> Any:
        return logical("bytes", "decimal", precision=precision, scale=scale)

    old = record(("id", "int"), ("price", money(5, 2)), ("code", "int"), ("gone", "string"))
    new = record(("id", "long"), ("price", money(6, 4)), ("code", "string"), ("fresh", "boolean"))
    values = [
        wire(1, encoded(old, {"id": 1, "price": Decimal("123.45"), "code": 5, "gone": "x"})),
        wire(2, encoded(new, {"id": 2, "price": Decimal("12.3456"), "code": "y", "fresh": True})),
    ]
    for order in (values, values[::-1]):
        table = Table(con, AVRO)
        rows = sorted(table.take(order, schemas=Schemas(old, new)), key=lambda row: int(row["id"]))
        assert [row["price"] for row in rows] == [Decimal("123.45"), Decimal("12.3456")]
        assert (table.types["price"], table.types["code"]) == ("DECIMAL(7,4)", "VARCHAR")
        assert (json.loads(rows[0]["_rescued"]), rows[1]["code"]) == ({"code": 5}, "y")


def test_bytes_are_never_taken_for_a_text_nor_a_text_for_bytes(con: duckdb.DuckDBPyConnection) -> None:
    text, data = record(("id", "int"), ("v", "string")), record(("id", "int"), ("v", "bytes"))
    schemas = Schemas(text, data)
    first, second = wire(1, encoded(text, {"id": 1, "v": "eA=="})), wire(2, encoded(data, {"id": 2, "v": b"x"}))
    for order, column in (([first, second], "VARCHAR"), ([second, first], "BLOB")):
        table = Table(con, AVRO)
        for each in order:
            table.take([each], schemas=schemas)
        assert table.types["v"] == column
        assert "v" not in table.rows[1]
        assert "_rescued" in table.rows[1]


BAD: list[tuple[Any, str]] = [
    (b"", "wire_format"),
    (b"\x00\x00\x00", "wire_format"),
    (b'{"id": 1}', "wire_format"),
    (b"\x01\x00\x00\x00\x01\x02", "wire_format"),
    (wire(9, b"\x02"), "schema_unknown"),
    (wire(1, b""), "undecodable"),
    (wire(1, b"\x02\x0aab"), "undecodable"),
    (wire(1, b"\x02\x04ab\x00"), "undecodable"),
    (wire(1, b"\x02\x04\xff\xff"), "undecodable"),
    (wire(1, b"\x02\x03ab"), "undecodable"),
    (wire(1, b"\xff" * 30), "undecodable"),
    (wire(2, b"\x02"), "schema_unusable"),
    (wire(3, b"\x02"), "not_object"),
    (wire(4, b"\x00"), "schema_unusable"),
    (wire(5, b""), "schema_unusable"),
]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_a_record_that_is_not_what_it_claims_is_rejected_alone(
    con: duckdb.DuckDBPyConnection, value: Any, reason: str
) -> None:
    good = record(("id", "long"), ("v", "string"))
    nothings = record(("v", {"type": "array", "items": "null"}))
    schemas = Schemas(good, {"type": "nonsense"}, "long", nothings, {**good, "fields": [{"name": "r", "type": "r"}]})
    table = Table(con, AVRO)
    rows = table.take([value, wire(1, encoded(good, {"id": 5, "v": "x"}))], schemas=schemas)
    assert (rows, table.reasons) == ([{"id": 5, "v": "x"}], {0: reason})
    assert table.last.rejected[0].value == value
    if reason.startswith("schema"):
        assert f"schema {int.from_bytes(value[1:5], 'big')}" in table.last.rejected[0].text


def test_a_schema_of_another_kind_is_unusable(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, AVRO)
    table.take([wire(1, b"\x02")], schemas=Schemas({"type": "object"}, kind="JSON"))
    assert table.reasons == {0: "schema_unusable"}
    assert "it is JSON, and not AVRO" in table.last.rejected[0].text


def test_each_schema_is_asked_for_once_a_batch(con: duckdb.DuckDBPyConnection) -> None:
    whole = record(("id", "int"))
    schemas = Schemas(whole)
    data = encoded(whole, {"id": 1})
    Table(con, AVRO).take([wire(number, data) for number in (1, 9, 1, 9, 9)], schemas=schemas)
    assert sorted(schemas.asked) == [1, 9]


@pytest.mark.parametrize("number", [b"\x01", b"\x03", b"\x04", b"\x80\x01"])
def test_a_number_that_no_symbol_has_is_undecodable(number: bytes) -> None:
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
    decoder = avro_decoder(RegisteredSchema("AVRO", json.dumps({"type": enum, "logicalType": "date"})))
    assert [decoder.decode(each) for each in (b"\x00", b"\x02")] == ["A", "B"]
    with pytest.raises(Undecodable):
        decoder.decode(number)


def test_a_registry_that_does_not_answer_rejects_no_record(con: duckdb.DuckDBPyConnection) -> None:
    class Down:
        def schema(self, number: int) -> RegisteredSchema | None:
            raise SourceError("source_unreachable", f"no {number}")

    with pytest.raises(SourceError):
        Table(con, AVRO).take([wire(1, b"\x02")], schemas=Down())


KEYS: list[tuple[Any, Any, str | None]] = [
    (record(("id", "int")), {"id": 7}, None),
    ("long", 7, None),
    (record(("other", "int")), {"other": 7}, "key_missing"),
    (record(("id", "string")), {"id": "7"}, "key_missing"),
    (["null", "long"], None, "key_missing"),
]


@pytest.mark.parametrize(("schema", "key", "reason"), KEYS)
def test_a_key_in_avro_says_which_row_goes(
    con: duckdb.DuckDBPyConnection, schema: Any, key: Any, reason: str | None
) -> None:
    value = record(("id", "int"))
    form = replace(AVRO, key=KeyFormat.AVRO, columns=(ID,), key_columns=("id",))
    table = Table(con, form)
    data = wire(2, encoded(value, {"id": 1}))
    rows = table.take([data, None], keys=[None, wire(1, encoded(schema, key))], schemas=Schemas(schema, value))
    assert rows == [{"id": 1}]
    assert sorted(each["id"] for each in table.touched or ()) == ([1] if reason else [1, 7])
    assert table.reasons == ({1: reason} if reason else {})


def test_a_key_in_avro_is_shown_in_json_and_a_wrong_one_is_rejected(con: duckdb.DuckDBPyConnection) -> None:
    key = record(("id", "int"), ("part", "bytes"))
    form = replace(BARE, key=KeyFormat.AVRO, metadata=(Metadata.KEY,))
    table = Table(con, form)
    keys = [wire(1, encoded(key, {"id": 1, "part": b"x"})), b"plain", None]
    rows = table.take([{"a": 1}] * 3, keys=keys, schemas=Schemas(key))
    assert rows == [{"_kafka_key": '{"id":1,"part":{"$base64":"eA=="}}', "a": 1}, {"a": 1}]
    assert table.reasons == {1: "wire_format"}
    assert table.last.rejected[0].text.endswith(": the key")


def test_json_behind_the_header_of_a_registry_is_json(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, value=ValueFormat.JSON_SCHEMA))
    values = [
        wire(1, b'{"id": 1, "at": "2026-01-01"}'), wire(99, b'{"id": 2}'), b'{"id": 3}', b"\x00\x00", None,
        wire(1, b"\xff"), wire(1, b"[1]"), wire(1, b""),
    ]  # fmt: skip
    rows = table.take(values)
    assert rows == [{"id": 1, "at": "2026-01-01"}, {"id": 2}, {}]
    assert table.reasons == {
        2: "wire_format", 3: "wire_format", 5: "invalid_utf8", 6: "not_object", 7: "not_json",
    }  # fmt: skip
    assert table.last.rejected[0].value == b'{"id": 3}'


def test_json_has_to_name_a_schema_of_the_registry_where_one_is_known(con: duckdb.DuckDBPyConnection) -> None:
    schemas = Schemas({"type": "object"}, kind="JSON")
    schemas.by_id[2] = RegisteredSchema("AVRO", '"long"')
    form = replace(BARE, value=ValueFormat.JSON_SCHEMA, key=KeyFormat.JSON_SCHEMA, metadata=(Metadata.KEY,))
    table = Table(con, form)
    values = [wire(number, b'{"id": 9007199254740993, "x": 1.0}') for number in (1, 99, 2, 1)]
    keys = [wire(1, b'{"k": 1}'), None, None, wire(99, b'{"k": 2}')]
    assert table.take(values, keys=keys, schemas=schemas) == [{"_kafka_key": '{"k": 1}', "id": 2**53 + 1, "x": 1.0}]
    assert table.reasons == {1: "schema_unknown", 2: "schema_unusable", 3: "schema_unknown"}
    assert [each.text.rpartition(": ")[2] for each in table.last.rejected] == [
        "the value, schema 99", "it is AVRO, and not JSON", "the key, schema 99",
    ]  # fmt: skip
    assert schemas.asked == [1, 99, 2, 1, 99], "once for values, and once for keys"


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "5", "{}", '"nothing"', '{"type":"record","name":"r"}', "[" * 5_000,
        '{"type":"fixed","name":"f","size":-1}', '{"type":"enum","name":"e","symbols":[1]}',
        json.dumps(record(*[(f"f{n}", record(*[(f"g{n}{m}", "int") for m in range(200)], name=f"r{n}"))
                            for n in range(100)])),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_unusable(text: str) -> None:
    with pytest.raises(UnusableSchema):
        avro_decoder(RegisteredSchema("AVRO", text))


def test_named_types_are_found_by_their_spaces_and_in_references() -> None:
    address = {"type": "record", "name": "Address", "namespace": "a.b", "fields": [{"name": "x", "type": "int"}]}
    whole: Mapping[str, Any] = {
        "type": "record", "name": "c.Person", "fields": [
            {"name": "home", "type": "a.b.Address"}, {"name": "work", "type": "a.b.Address"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["K"]}},
            {"name": "again", "type": "Kind"},
        ],
    }  # fmt: skip
    decoder = avro_decoder(RegisteredSchema("AVRO", json.dumps(whole), (("Address", json.dumps(address)),)))
    assert decoder.decode(b"\x02\x04\x00\x00") == {"home": {"x": 1}, "work": {"x": 2}, "kind": "K", "again": "K"}
    with pytest.raises(Undecodable, match="left over"):
        decoder.decode(b"\x02\x04\x00\x00\x00")
