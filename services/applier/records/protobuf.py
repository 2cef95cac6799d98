"""Messages of Protobuf become the fields that a value in JSON would have, by the descriptors of a registry.

A record names its message by a path of indexes through the file's messages, in front of its bytes. Fields that are not
set and have a presence of their own have no value; all others have their default, as Protobuf means it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from services.applier.records.avro_types import TIMES, in_base64, spelled_double
from services.applier.records.decoder import Undecodable, UnusableSchema
from services.applier.records.inference import join_types
from shared.kafka.schema_registry import RegisteredSchema

Spell = Callable[[Any], Any]

KNOWN = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
)  # fmt: skip
"""Files that any other may import without a reference."""

OWN = "viaduck"
"""Of the file itself, which a registry gives no name."""

MOST_INDEXES, MOST_SHIFT = 64, 35

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
TIMESTAMPTZ, spelled_nanoseconds = TIMES["timestamp-nanos", "long"]


class ProtobufDecoder:
    """Values of one schema in one batch. ``columns`` are types by the names of fields, and ``columns_within`` of the
    fields of a field, of the messages that its records have named."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._messages: dict[tuple[int, ...], tuple[Any, Spell]] = {}
        self.columns: dict[str, str] = {}
        self.columns_within: dict[str, dict[str, str]] = {}

    def decode(self, data: bytes) -> Any:
        path, begin = _path_in(data)
        if path not in self._messages:
            self._messages[path] = self._found(path)
        kind, spell = self._messages[path]
        try:
            return spell(kind.FromString(data[begin:]))
        except DecodeError as error:
            raise Undecodable(type(error).__name__) from None

    def _found(self, path: Sequence[int]) -> tuple[Any, Spell]:
        messages, found = list(self._file.message_types_by_name.values()), None
        for index in path:
            if index >= len(messages):
                raise Undecodable("the schema has no message of its path")
            found = messages[index]
            messages = list(found.nested_types)
        for each in found.fields if found is not None else ():
            _join_columns(self.columns, [each])
            if each.message_type is not None:
                _join_columns(self.columns_within.setdefault(each.name, {}), each.message_type.fields)
        return message_factory.GetMessageClass(found), _spelled_message


def protobuf_decoder(schema: RegisteredSchema) -> ProtobufDecoder:
    """Raises ``UnusableSchema``."""
    return ProtobufDecoder(_file_of(schema))


@lru_cache(maxsize=256)
def _file_of(schema: RegisteredSchema) -> Any:
    if schema.kind != "PROTOBUF":
        raise UnusableSchema(f"it is {schema.kind[:20]}, and not PROTOBUF")
    pool = descriptor_pool.DescriptorPool()
    try:
        for known in KNOWN:
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        for name, text in (*schema.references, (OWN, schema.text)):
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(OWN)
    except Exception as error:  # of any kind: what is wrong with a text from outside makes it no schema
        raise UnusableSchema(f"it is no descriptor in Protobuf ({type(error).__name__})") from None


def _path_in(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes in front of a message, and where it begins. No index at all means the first message."""
    count, at = _number(data, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise Undecodable("the path of its message is no path")
    path: list[int] = []
    for _ in range(count):
        index, at = _number(data, at)
        path.append(index)
    if any(index < 0 for index in path):
        raise Undecodable("the path of its message is no path")
    return tuple(path) or (0,), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    raw = shift = 0
    while True:
        if at >= len(data) or shift >= MOST_SHIFT:
            raise Undecodable("the path of its message is cut off")
        raw |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def _spelled_message(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        if each.has_presence and not message.HasField(each.name):
            continue
        found[each.name] = _spelled_field(each, getattr(message, each.name))
    return found


def _spelled_field(given: Any, value: Any) -> Any:
    if _is_map(given):
        item = given.message_type.fields_by_name["value"]
        return {_map_key(key): _spelled_value(item, value[key]) for key in value}
    if given.is_repeated:
        return [_spelled_value(given, each) for each in value]
    return _spelled_value(given, value)


def _spelled_value(given: Any, value: Any) -> Any:
    if given.message_type is not None:
        return _spelled_within(given.message_type.full_name, value)
    if given.enum_type is not None:
        known = given.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    spell = SCALARS[given.cpp_type][1] if given.type != FieldDescriptor.TYPE_BYTES else in_base64
    return value if spell is None else spell(value)


def _spelled_within(name: str, value: Any) -> Any:
    if name == TIMESTAMP:
        return spelled_nanoseconds(value.seconds * 1_000_000_000 + value.nanos)
    if name in WRAPPERS:
        return _spelled_value(value.DESCRIPTOR.fields_by_name["value"], value.value)
    return _spelled_message(value)


def _join_columns(columns: dict[str, str], fields: Sequence[Any]) -> None:
    for each in fields:
        column = _column(each)
        columns[each.name] = join_types(columns.get(each.name, column), column)


def _column(given: Any) -> str:
    """The type of the column that takes a field."""
    if given.is_repeated:
        return "JSON"
    if given.message_type is not None:
        name = given.message_type.full_name
        if name in WRAPPERS:
            return _column(given.message_type.fields_by_name["value"])
        return TIMESTAMPTZ if name == TIMESTAMP else "JSON"
    if given.enum_type is not None:
        return "VARCHAR"
    return "BLOB" if given.type == FieldDescriptor.TYPE_BYTES else SCALARS[given.cpp_type][0]


def _is_map(given: Any) -> bool:
    return given.message_type is not None and given.message_type.GetOptions().map_entry


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


SCALARS: dict[int, tuple[str, Spell | None]] = {
    FieldDescriptor.CPPTYPE_BOOL: ("BOOLEAN", None),
    FieldDescriptor.CPPTYPE_INT32: ("BIGINT", None),
    FieldDescriptor.CPPTYPE_INT64: ("BIGINT", None),
    FieldDescriptor.CPPTYPE_UINT32: ("BIGINT", None),
    FieldDescriptor.CPPTYPE_UINT64: ("DECIMAL(20,0)", str),
    FieldDescriptor.CPPTYPE_FLOAT: ("DOUBLE", spelled_double),
    FieldDescriptor.CPPTYPE_DOUBLE: ("DOUBLE", spelled_double),
    FieldDescriptor.CPPTYPE_STRING: ("VARCHAR", None),
}
"""The column of each kind, and how its values are spelled."""
