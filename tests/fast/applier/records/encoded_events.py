"""Change events in the encodings of a registry, as the converters of Kafka Connect write Debezium's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from services.applier.records.record_format import KeyFormat, ValueFormat
from shared.kafka.schema_registry import RegisteredSchema
from tests.fast.applier.records.test_avro import Schemas, encoded, wire

KEY, EVENT = 1, 2
"""Ids of their schemas."""

FIELD = descriptor_pb2.FieldDescriptorProto
PROTOBUF_TYPES = {"long": FIELD.TYPE_INT64, "string": FIELD.TYPE_STRING}


def nullable(declared: Any) -> Any:
    return {"type": ["null", declared], "default": None}


def envelope(fields: Mapping[str, Any], keys: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    """The schema of the events of a table, whose fields are null in ``before`` where they are none of the key."""
    row = {
        "type": "record", "name": "Value", "connect.name": "shop.public.orders.Value",
        "fields": [{"name": n, **({"type": t} if n in keys else nullable(t))} for n, t in fields.items()],
    }  # fmt: skip
    source = {
        "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
        "connect.name": "io.debezium.connector.postgresql.Source",
        "fields": [
            {"name": "version", "type": "string"}, {"name": "lsn", **nullable("long")},
            {"name": "snapshot", "type": [
                {"type": "string", "connect.version": 1, "connect.parameters": {"allowed": "true,last,false"},
                 "connect.default": "false", "connect.name": "io.debezium.data.Enum"}, "null"], "default": "false"},
        ],
    }  # fmt: skip
    return {
        "type": "record", "name": "Envelope", "namespace": "shop.public.orders", "connect.version": 1,
        "connect.name": "shop.public.orders.Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source}, {"name": "op", "type": "string"}, {"name": "ts_ms", **nullable("long")},
        ],
    }  # fmt: skip


def key_schema(fields: Mapping[str, Any], keys: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    named = [{"name": name, "type": fields[name]} for name in keys]
    return {"type": "record", "name": "Key", "namespace": "shop.public.orders", "fields": named}


def in_avro(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event as fastavro takes it, with where it comes from."""
    source = {"version": "3.0.0.Final", "lsn": 5, "snapshot": "false"}
    return {"ts_ms": 1, "before": None, "after": None, **event, "source": source}


@dataclass(frozen=True)
class Encoding:
    """How values and keys of one table are written, both from what JSON has of them."""

    value: ValueFormat
    key: KeyFormat
    schemas: Callable[[], Schemas]
    write_value: Callable[[Any], Any]
    write_key: Callable[[Any], Any]


FIELDS = {"id": "long", "n": "long", "big": "string"}
"""Of the table of ``ENCODINGS``."""


def _json_schemas() -> Schemas:
    return Schemas({"type": "object"}, {"type": "object"}, kind="JSON")


def _avro_schemas() -> Schemas:
    return Schemas(key_schema(FIELDS), envelope(FIELDS))


def _protobuf_file(*kept: str) -> Any:
    """As Confluent's converter writes it with ``optional.for.nullables``."""
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="shop", syntax="proto3")
    row = descriptor_pb2.DescriptorProto(name="Value")
    for name, declared in FIELDS.items():
        place = len(row.oneof_decl)
        row.oneof_decl.add(name=f"_{name}")
        row.field.add(
            name=name, number=place + 1, type=PROTOBUF_TYPES[declared], label=FIELD.LABEL_OPTIONAL,
            oneof_index=place, proto3_optional=True,
        )  # fmt: skip
    event = descriptor_pb2.DescriptorProto(name="Envelope")
    for number, name in enumerate(("before", "after"), 1):
        kind = FIELD.TYPE_MESSAGE
        event.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL, type_name=".shop.Value")
    event.field.add(name="op", number=3, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    key = descriptor_pb2.DescriptorProto(name="Key")
    key.field.add(name="id", number=1, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    messages = {"Envelope": [event, row], "Key": [key]}
    file.message_type.extend(message for name in kept for message in messages[name])
    return file


def _protobuf_schemas() -> Schemas:
    found = Schemas()
    for number, name in ((KEY, "Key"), (EVENT, "Envelope")):
        text = base64.b64encode(_protobuf_file(name).SerializeToString()).decode()
        found.by_id[number] = RegisteredSchema("PROTOBUF", text)
    return found


@cache
def _message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_protobuf_file("Envelope", "Key"))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


def _in_protobuf(number: int, name: str) -> Callable[[Any], Any]:
    def write(value: Any) -> Any:
        known = {each: value[each] for each in ("before", "after", "op", "id") if value and each in value}
        found = json_format.ParseDict(known, _message(name)())
        return None if value is None else wire(number, b"\x00" + found.SerializeToString())

    return write


def _in_json(number: int) -> Callable[[Any], Any]:
    return lambda value: None if value is None else wire(number, json.dumps(value).encode())


ENCODINGS = {
    "json": Encoding(ValueFormat.JSON, KeyFormat.JSON, Schemas, lambda value: value, lambda key: key),
    "json_schema": Encoding(
        ValueFormat.JSON_SCHEMA, KeyFormat.JSON_SCHEMA, _json_schemas, _in_json(EVENT), _in_json(KEY)
    ),
    "avro": Encoding(
        ValueFormat.AVRO, KeyFormat.AVRO, _avro_schemas,
        lambda value: None if value is None else wire(EVENT, encoded(envelope(FIELDS), in_avro(value))),
        lambda key: wire(KEY, encoded(key_schema(FIELDS), key)),
    ),
    "protobuf": Encoding(
        ValueFormat.PROTOBUF, KeyFormat.PROTOBUF, _protobuf_schemas,
        _in_protobuf(EVENT, "Envelope"), _in_protobuf(KEY, "Key"),
    ),
}  # fmt: skip
