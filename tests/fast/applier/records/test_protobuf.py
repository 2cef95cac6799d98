"""Records in Protobuf become rows by the descriptors of a registry; Protobuf's own library writes them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from services.applier.records.decoder import UnusableSchema
from services.applier.records.protobuf import protobuf_decoder
from services.applier.records.record_format import DeclaredColumn, KeyFormat, ValueFormat
from shared.kafka.schema_registry import RegisteredSchema
from tests.fast.applier.records.records import BARE, Table
from tests.fast.applier.records.test_avro import Schemas, wire

PROTOBUF = replace(BARE, value=ValueFormat.PROTOBUF)
FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "flag": FIELD.TYPE_BOOL, "small": FIELD.TYPE_SINT32, "big": FIELD.TYPE_INT64, "unsigned": FIELD.TYPE_FIXED64,
    "half": FIELD.TYPE_FLOAT, "exact": FIELD.TYPE_DOUBLE, "text": FIELD.TYPE_STRING, "data": FIELD.TYPE_BYTES,
}  # fmt: skip


def field(message: Any, name: str, kind: int, type_name: str = "", *, repeated: bool = False) -> None:
    label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label, type_name=type_name or None)


def described() -> Any:
    """A file of the messages Whole, with all kinds of fields, and Other, with one within it."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "address.proto"])
    file.enum_type.add(name="Kind").value.add(name="NEW", number=0)
    whole = file.message_type.add(name="Whole")
    for name, kind in KINDS.items():
        field(whole, name, kind)
    field(whole, "kind", FIELD.TYPE_ENUM, ".shop.Kind")
    field(whole, "at", FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    field(whole, "count", FIELD.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    field(whole, "home", FIELD.TYPE_MESSAGE, ".shop.Address")
    field(whole, "tags", FIELD.TYPE_STRING, repeated=True)
    entry = whole.nested_type.add(name="SizesEntry")
    entry.options.map_entry = True
    field(entry, "key", FIELD.TYPE_BOOL)
    field(entry, "value", FIELD.TYPE_BYTES)
    field(whole, "sizes", FIELD.TYPE_MESSAGE, ".shop.Whole.SizesEntry", repeated=True)
    other = file.message_type.add(name="Other")
    field(other, "big", FIELD.TYPE_STRING)
    inner = other.nested_type.add(name="Inner")
    field(inner, "id", FIELD.TYPE_INT64)
    return file


def address() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="address.proto", package="shop", syntax="proto3")
    field(file.message_type.add(name="Address"), "street", FIELD.TYPE_STRING)
    return file


def in_base64(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def schemas(kind: str = "PROTOBUF") -> Schemas:
    found = Schemas()
    found.by_id[1] = RegisteredSchema(kind, in_base64(described()), (("address.proto", in_base64(address())),))
    return found


def message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for file in (address(), described()):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))()


FIRST = b"\x00"
OTHER = b"\x02\x02"
INNER = b"\x04\x02\x00"
"""Paths: of one index, 1, and of two, 1 and 0."""


def test_each_kind_of_field_has_its_column(con: duckdb.DuckDBPyConnection) -> None:
    whole = message("Whole")
    whole.flag, whole.small, whole.big, whole.unsigned = True, -5, -(2**63), 2**64 - 1
    whole.half, whole.exact, whole.text, whole.data = 0.5, 5e-324, "ä\x01", b"\x00\xff"
    whole.at.seconds, whole.at.nanos, whole.count.value, whole.home.street = -1, 500_000_000, 7, "x"
    whole.tags.extend(["a", "b"])
    whole.sizes[True] = b"x"
    table = Table(con, PROTOBUF)
    (row,) = table.take([wire(1, FIRST + whole.SerializeToString())], schemas=schemas())
    assert row == {
        "flag": True, "small": -5, "big": -(2**63), "unsigned": Decimal(2**64 - 1), "half": 0.5, "exact": 5e-324,
        "text": "ä\x01", "data": b"\x00\xff", "kind": "NEW",
        "at": datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC),
        "count": 7, "home": '{"street":"x"}', "tags": '["a","b"]', "sizes": '{"true":{"$base64":"eA=="}}',
    }  # fmt: skip
    assert table.types == {
        "flag": "BOOLEAN", "small": "BIGINT", "big": "BIGINT", "unsigned": "DECIMAL(20,0)", "half": "DOUBLE",
        "exact": "DOUBLE", "text": "VARCHAR", "data": "BLOB", "kind": "VARCHAR", "at": "TIMESTAMP WITH TIME ZONE",
        "count": "BIGINT", "home": "JSON", "tags": "JSON", "sizes": "JSON",
    }  # fmt: skip


def test_defaults_are_values_and_what_is_not_set_is_none(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, PROTOBUF)
    (row,) = table.take([wire(1, FIRST)], schemas=schemas())
    assert row == {
        "flag": False, "small": 0, "big": 0, "unsigned": 0, "half": 0.0, "exact": 0.0, "text": "", "data": b"",
        "kind": "NEW", "tags": "[]", "sizes": "{}",
    }  # fmt: skip


def test_values_that_no_column_holds_are_rescued(con: duckdb.DuckDBPyConnection) -> None:
    whole = message("Whole")
    whole.exact, whole.kind, whole.at.seconds = float("nan"), 9, 2**60
    table = Table(con, PROTOBUF)
    (row,) = table.take([wire(1, FIRST + whole.SerializeToString())], schemas=schemas())
    assert json.loads(row["_rescued"]) == {"exact": "NaN", "kind": 9, "at": 2**60 * 10**9}


def test_a_message_is_found_by_its_path(con: duckdb.DuckDBPyConnection) -> None:
    inner = message("Other.Inner")
    inner.id = 5
    table = Table(con, PROTOBUF)
    assert table.take([wire(1, INNER + inner.SerializeToString())], schemas=schemas()) == [{"id": 5}]
    assert table.types == {"id": "BIGINT"}


def test_columns_are_told_by_the_messages_of_a_batch_and_not_by_what_the_worker_read_before(
    con: duckdb.DuckDBPyConnection,
) -> None:
    other = message("Other")
    other.big = "a text"
    first, second = Table(con, PROTOBUF), Table(con, PROTOBUF)
    first.take([wire(1, OTHER + other.SerializeToString())], schemas=schemas())
    second.take([wire(1, FIRST)], schemas=schemas())
    assert (first.types["big"], second.types["big"]) == ("VARCHAR", "BIGINT")


def test_a_key_in_protobuf_says_which_row_goes(con: duckdb.DuckDBPyConnection) -> None:
    inner = message("Other.Inner")
    inner.id = 5
    columns = (DeclaredColumn("id", "$.id", "BIGINT"),)
    form = replace(BARE, key=KeyFormat.PROTOBUF, columns=columns, key_columns=("id",))
    table = Table(con, form)
    rows = table.take([{"id": 5}, None], keys=[None, wire(1, INNER + inner.SerializeToString())], schemas=schemas())
    assert (rows, table.touched, table.reasons) == ([], [{"id": 5}], {})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "undecodable"),
        (b"\x04\x02", "undecodable"),
        (b"\x80" * 9, "undecodable"),
        (b"\x01", "undecodable"),
        (b"\x02\x01", "undecodable"),
        (b"\x02\x0a", "undecodable"),
        (FIRST + b"\x3a\x05ab", "undecodable"),
        (FIRST + b"\x3a\x02\xff\xff", "undecodable"),
    ],
)
def test_bytes_that_are_no_message_are_rejected_alone(con: duckdb.DuckDBPyConnection, data: bytes, reason: str) -> None:
    table = Table(con, PROTOBUF)
    rows = table.take([wire(1, data), wire(1, INNER), wire(2, b"")], schemas=schemas())
    assert (rows, table.reasons) == ([{"id": 0}], {0: reason, 2: "schema_unknown"})


@pytest.mark.parametrize(
    "schema",
    [
        RegisteredSchema("AVRO", in_base64(described())),
        RegisteredSchema("PROTOBUF", 'syntax = "proto3";'),
        RegisteredSchema("PROTOBUF", "AAAA"),
        RegisteredSchema("PROTOBUF", in_base64(described())),
    ],
    ids=["kind", "text", "bytes", "reference"],
)
def test_what_is_no_descriptor_is_unusable(schema: RegisteredSchema) -> None:
    with pytest.raises(UnusableSchema):
        protobuf_decoder(schema)
