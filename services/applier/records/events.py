"""Change events by the schemas of a registry: what is kept of one, and the columns that take its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from services.applier.records.avro import avro_decoder
from services.applier.records.debezium_types import connect_type
from services.applier.records.decoder import Decoder
from services.applier.records.protobuf import protobuf_decoder
from shared.kafka.schema_registry import RegisteredSchema

ROW = "after"
PARTS = ("op", "before", ROW)
"""Of an event; what else there is tells where it comes from, and is of no row."""


class Nested(Decoder, Protocol):
    """A decoder that knows the fields of its fields, too."""

    @property
    def columns_within(self) -> Mapping[str, dict[str, str]]: ...


class EventDecoder:
    """Events of one schema. A value that is none has no ``op``, or is no object."""

    def __init__(self, decoder: Nested) -> None:
        self._decoder = decoder

    @property
    def columns(self) -> dict[str, str]:
        """Those of the row."""
        return self._decoder.columns_within.get(ROW, {})

    def decode(self, data: bytes) -> Any:
        """What ``json`` can spell. Raises ``Undecodable``."""
        found = self._decoder.decode(data)
        return {name: found[name] for name in PARTS if name in found} if isinstance(found, dict) else found


def avro_events(schema: RegisteredSchema) -> EventDecoder:
    """Raises ``UnusableSchema``."""
    return EventDecoder(avro_decoder(schema, connect_type))


def protobuf_events(schema: RegisteredSchema) -> EventDecoder:
    """Raises ``UnusableSchema``."""
    return EventDecoder(protobuf_decoder(schema))
