"""Records in a registry's wire format become records in JSON: a byte 0, the schema's id in four, and what it describes.

Each value is decoded once, by the schema that it names; a record whose bytes are not what they claim to be is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from services.applier.records.avro import avro_decoder
from services.applier.records.debezium_types import connect_type
from services.applier.records.decoder import Decoder, Undecodable, UnusableSchema
from services.applier.records.events import avro_events, protobuf_events
from services.applier.records.inference import join_types
from services.applier.records.protobuf import protobuf_decoder
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import (
    IN_WIRE_FORMAT,
    KEYS_IN_WIRE_FORMAT,
    KeyFormat,
    RecordFormat,
    ValueFormat,
)
from services.applier.records.rejection import RejectionReason
from shared.kafka.schema_registry import RegisteredSchema

MAGIC, HEADER = 0, 5
CHUNK = 4_096
"""So many values are Python objects at once."""

BYTES = pa.large_binary()

in_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

Refusal = tuple[RejectionReason, str]


class Schemas(Protocol):
    def schema(self, number: int) -> RegisteredSchema | None:
        """None where there is none of this id. Raises ``source_unreachable``."""


@dataclass
class Decoded:
    """A batch in JSON. ``bad`` are the places of records without one, ``types`` the columns that schemas tell."""

    batch: RecordBatch
    bad: dict[int, Refusal] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def decode(batch: RecordBatch, form: RecordFormat, schemas: Schemas | None) -> Decoded:
    """Raises ``source_unreachable`` where the registry does not tell a schema: that is no record's fault."""
    decoded = Decoded(batch)
    is_event = form.value is ValueFormat.DEBEZIUM
    if form.encoded_as in IN_WIRE_FORMAT:
        known = _known((OF_EVENTS if is_event else OF_VALUES)[form.encoded_as], schemas)
        decoded.batch = replace(decoded.batch, values=_texts(batch.values, known, decoded.bad, "the value"))
        decoded.types = {} if known is None else known.types()
    if form.key in KEYS_IN_WIRE_FORMAT and form.key_is_used:
        known = _known((OF_KEYS_OF_EVENTS if is_event else OF_KEYS)[form.key], schemas)
        decoded.batch = replace(decoded.batch, keys=_texts(batch.keys, known, decoded.bad, "the key"))
    return decoded


Find = Callable[[RegisteredSchema], Decoder | None]
"""None where what is behind the header is read as it is. Raises ``UnusableSchema``."""


def json_as_it_is(schema: RegisteredSchema) -> None:
    """JSON tells its fields itself, and is not held against its schema."""
    if schema.kind != "JSON":
        raise UnusableSchema(f"it is {schema.kind[:20]}, and not JSON")


def _avro_of_connect(schema: RegisteredSchema) -> Decoder:
    """Spelled as the rows of the events are, or a tombstone would name another row."""
    return avro_decoder(schema, connect_type)


OF_JSON: dict[ValueFormat, Find] = {ValueFormat.JSON_SCHEMA: json_as_it_is}
OF_VALUES: dict[ValueFormat, Find] = {**OF_JSON, ValueFormat.AVRO: avro_decoder, ValueFormat.PROTOBUF: protobuf_decoder}
OF_EVENTS: dict[ValueFormat, Find] = {**OF_JSON, ValueFormat.AVRO: avro_events, ValueFormat.PROTOBUF: protobuf_events}
OF_KEYS: dict[KeyFormat, Find] = {
    KeyFormat.JSON_SCHEMA: json_as_it_is, KeyFormat.AVRO: avro_decoder, KeyFormat.PROTOBUF: protobuf_decoder
}  # fmt: skip
OF_KEYS_OF_EVENTS: dict[KeyFormat, Find] = {**OF_KEYS, KeyFormat.AVRO: _avro_of_connect}
"""Decoders by the formats of a registry's wire."""


def _known(find: Find, schemas: Schemas | None) -> _Known | None:
    """None where no schema is asked for: those of JSON are not needed, and the file names no registry."""
    return None if schemas is None and find is json_as_it_is else _Known(schemas, find)


class _Known:
    """The decoders of one batch by the ids of their schemas."""

    def __init__(self, schemas: Schemas | None, find: Find) -> None:
        self._schemas = schemas
        self._find = find
        self._decoders: dict[int, Decoder | Refusal | None] = {}

    def of(self, number: int) -> Decoder | Refusal | None:
        if number not in self._decoders:
            self._decoders[number] = self._found(number)
        return self._decoders[number]

    def types(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _, decoder in sorted(self._decoders.items()):
            for name, declared in {} if decoder is None or isinstance(decoder, tuple) else decoder.columns.items():
                found[name] = join_types(found.get(name, declared), declared)
        return found

    def _found(self, number: int) -> Decoder | Refusal | None:
        if self._schemas is None:
            raise ValueError("no registry is known for a format that needs one")
        schema = self._schemas.schema(number)
        if schema is None:
            return RejectionReason.SCHEMA_UNKNOWN, f"schema {number}"
        try:
            return self._find(schema)
        except UnusableSchema as error:
            return RejectionReason.SCHEMA_UNUSABLE, f"schema {number}: {error}"


def _in_chunks(values: pa.Array, of: Callable[[bytes | None, int], bytes | None]) -> pa.Array:
    """What becomes of each value, which is given with its place."""
    chunks = [
        pa.array([of(each.as_py(), place) for place, each in enumerate(values.slice(begin, CHUNK), begin)], BYTES)
        for begin in range(0, len(values), CHUNK)
    ]
    return pa.concat_arrays(chunks) if chunks else values


def _texts(values: pa.Array, known: _Known | None, bad: dict[int, Refusal], what: str) -> pa.Array:
    """Null where there is nothing, or nothing that can be read. Without ``known`` no schema is asked for."""

    def decoded_value(data: bytes | None, place: int) -> bytes | None:
        found = None if data is None else _decoded(data, known)
        if isinstance(found, tuple):
            reason, said = found
            bad[place] = reason, f"{what}, {said}" if said else what
            return None
        return found

    return _in_chunks(values, decoded_value)


def _decoded(data: bytes, known: _Known | None) -> bytes | Refusal:
    if len(data) < HEADER or data[0] != MAGIC:
        return RejectionReason.WIRE_FORMAT, ""
    number = int.from_bytes(data[1:HEADER], "big")
    decoder = None if known is None else known.of(number)
    if decoder is None:
        return data[HEADER:]
    if isinstance(decoder, tuple):
        return decoder
    try:
        return in_json(decoder.decode(data[HEADER:])).encode()
    except (Undecodable, ValueError, RecursionError) as error:
        return RejectionReason.UNDECODABLE, f"schema {number}: {error if isinstance(error, Undecodable) else 'no text'}"
