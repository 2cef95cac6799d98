"""How the records of a topic become rows: what is declared, what is inferred, what is refused."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from enum import StrEnum

from services.applier.records.column_names import METADATA_PREFIX, may_be_column
from services.applier.records.conversions import is_supported
from shared.config.field_types import duckdb_spelling


class ValueFormat(StrEnum):
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"
    DEBEZIUM = "debezium"
    AVRO = "avro"
    JSON_SCHEMA = "json_schema"
    PROTOBUF = "protobuf"

    @property
    def has_fields(self) -> bool:
        """Whether a value has fields, each of which may be a column."""
        return self not in (ValueFormat.TEXT, ValueFormat.BYTES)


IN_WIRE_FORMAT = (ValueFormat.AVRO, ValueFormat.JSON_SCHEMA, ValueFormat.PROTOBUF)
OF_EVENTS = (ValueFormat.JSON, *IN_WIRE_FORMAT)
"""How change events may be encoded."""


class KeyFormat(StrEnum):
    NONE = "none"
    TEXT = "text"
    BYTES = "bytes"
    JSON = "json"
    JSON_SCHEMA = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def is_json(self) -> bool:
        """Whether a key is JSON once it was decoded."""
        return self in (KeyFormat.JSON, *KEYS_IN_WIRE_FORMAT)


KEYS_IN_WIRE_FORMAT = (KeyFormat.JSON_SCHEMA, KeyFormat.AVRO, KeyFormat.PROTOBUF)


class Infer(StrEnum):
    FOLLOW = "follow"
    FREEZE = "freeze"


class Metadata(StrEnum):
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    KEY = "key"
    HEADERS = "headers"
    INSERTED_AT = "inserted_at"

    @property
    def column(self) -> str:
        return METADATA_PREFIX + self.value


HEADERS_TYPE = 'STRUCT("key" VARCHAR, "value" BLOB)[]'

METADATA_TYPES = {
    Metadata.PARTITION: "INTEGER",
    Metadata.OFFSET: "BIGINT",
    Metadata.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    Metadata.HEADERS: HEADERS_TYPE,
    Metadata.INSERTED_AT: "TIMESTAMP WITH TIME ZONE",
}

KEY_TYPES = {
    KeyFormat.NONE: "BLOB",
    KeyFormat.TEXT: "VARCHAR",
    KeyFormat.BYTES: "BLOB",
    KeyFormat.JSON: "JSON",
    KeyFormat.JSON_SCHEMA: "JSON",
    KeyFormat.AVRO: "JSON",
    KeyFormat.PROTOBUF: "JSON",
}

PATH = re.compile(r'\$((?:\.(?:[^."\[\]$*]+|"[^"]+"))+)')
PART = re.compile(r'\.(?:([^."\[\]$*]+)|"([^"]+)")')


def fields_of(path: str) -> tuple[str, ...]:
    """The names along a path such as ``$.device."os.name"``. Raises ``ValueError`` for any other text."""
    if not PATH.fullmatch(path):
        raise ValueError(f'{path!r} is no path of names such as $.id or $.device."os.name"')
    return tuple(plain or quoted for plain, quoted in PART.findall(path))


@dataclass(frozen=True)
class DeclaredColumn:
    """A column that is there from the first record on, of exactly this type.

    ``type`` may be any common spelling of a type that ``conversions.is_supported``."""

    name: str
    path: str
    type: str
    required: bool = False

    @property
    def duckdb_type(self) -> str:
        return duckdb_spelling(self.type)


@dataclass(frozen=True)
class RecordFormat:
    """Raises ``ValueError`` for columns that contradict each other.

    ``key_columns`` are declared columns, or ``_kafka_key`` alone; none where every record is appended. The key of a
    record without a value says which row it deletes: a text is the only key column's value, an object in JSON has a
    field for each of them, called as the last name of the column's path.
    """

    value: ValueFormat = ValueFormat.JSON
    key: KeyFormat = KeyFormat.NONE
    columns: tuple[DeclaredColumn, ...] = ()
    key_columns: tuple[str, ...] = ()
    infer: Infer = Infer.FOLLOW
    metadata: tuple[Metadata, ...] = (Metadata.PARTITION, Metadata.OFFSET, Metadata.TIMESTAMP)
    max_columns: int = 500
    """Of all columns but ``_rescued``."""
    max_record_bytes: int = 64 * 1024 * 1024
    """Of key and value together."""
    encoding: ValueFormat = ValueFormat.JSON
    """Of values that are change events: one of ``OF_EVENTS``."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for earlier, column in itertools.combinations(self.columns, 2):
            if earlier.name.lower() == column.name.lower():
                raise ValueError(f"two columns are called {column.name}")
            if fields_of(earlier.path) == fields_of(column.path):
                raise ValueError(f"the columns {earlier.name} and {column.name} take the same field")
        for column in self.columns:
            fields_of(column.path)
            if not may_be_column(column.name):
                raise ValueError(f"no column can be called {column.name[:80]!r}")
            if not is_supported(column.duckdb_type):
                raise ValueError(f"the column {column.name} is {column.type[:80]}, which no field is converted to")
        self._check_together(set(names))

    def _check_together(self, names: set[str]) -> None:
        if self.columns and not self.value.has_fields:
            raise ValueError(f"columns can't be declared of values that are {self.value}")
        if not (self.columns or self.metadata) and self.value.has_fields:
            raise ValueError("a table needs a column from the beginning: declare one, or keep some of the metadata")
        known = {Metadata.KEY.column} if self.key_is_the_row_s else names
        if unknown := [name for name in self.key_columns if name not in known]:
            raise ValueError(f"the key column {unknown[0]} is not declared")
        if self.value is ValueFormat.DEBEZIUM and not (self.key_columns and self.key.is_json):
            raise ValueError("events of Debezium need key columns, and keys with fields: a tombstone has nothing else")
        if self.encoding not in (OF_EVENTS if self.value is ValueFormat.DEBEZIUM else (ValueFormat.JSON,)):
            raise ValueError(f"values that are {self.value} are not encoded in {self.encoding}")

    @property
    def key_is_used(self) -> bool:
        return bool(self.key_columns) or Metadata.KEY in self.metadata

    @property
    def is_decoded(self) -> bool:
        """Whether values or keys are in the wire format of a registry."""
        return self.encoded_as in IN_WIRE_FORMAT or self.key in KEYS_IN_WIRE_FORMAT

    @property
    def encoded_as(self) -> ValueFormat:
        """What the bytes of a value are, whatever is told in them."""
        return self.encoding if self.value is ValueFormat.DEBEZIUM else self.value

    @property
    def key_is_the_row_s(self) -> bool:
        """Whether rows are told apart by the record's own key."""
        return Metadata.KEY in self.metadata and self.key_columns == (Metadata.KEY.column,)
