"""Records that no row can be made of, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from services.applier.records.record_batch import RecordBatch


class RejectionReason(StrEnum):
    TOO_LARGE = "too_large"
    INVALID_UTF8 = "invalid_utf8"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    DUPLICATE_FIELD = "duplicate_field"
    REQUIRED_MISSING = "required_missing"
    TYPE_MISMATCH = "type_mismatch"
    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    NOT_CARRIED = "not_carried"
    NOT_EVENT = "not_event"
    LEFT_OUT = "left_out"
    WIRE_FORMAT = "wire_format"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_UNUSABLE = "schema_unusable"
    UNDECODABLE = "undecodable"


TEXTS = {
    RejectionReason.TOO_LARGE: "key and value are larger than max_record_bytes",
    RejectionReason.INVALID_UTF8: "the value is not valid UTF-8",
    RejectionReason.NOT_JSON: "the value is not JSON",
    RejectionReason.NOT_OBJECT: "the value is JSON, and not an object",
    RejectionReason.DUPLICATE_FIELD: "two fields of the value have one name",
    RejectionReason.REQUIRED_MISSING: "a required column has no value",
    RejectionReason.TYPE_MISMATCH: "the value of a required column is not of its type",
    RejectionReason.KEY_MISSING: "a key column has no value of its type",
    RejectionReason.KEY_INVALID: "the key is not of the declared format",
    RejectionReason.NOT_CARRIED: "a text holds a word in braces, such as {AUTHOR}, which DuckLake replaces",
    RejectionReason.NOT_EVENT: "the value is no change event of Debezium with op, before and after",
    RejectionReason.WIRE_FORMAT: "there is no byte 0 with the id of a schema in front",
    RejectionReason.SCHEMA_UNKNOWN: "the registry has no schema of this id",
    RejectionReason.SCHEMA_UNUSABLE: "values can't be read by their schema",
    RejectionReason.UNDECODABLE: "the bytes are no value of their schema",
    RejectionReason.LEFT_OUT: (
        "an update leaves out a value that it did not change, and no row of its key is there to have it"
    ),
}


@dataclass(frozen=True)
class Rejection:
    """A record as it was read, byte for byte; ``text`` says what ``reason`` means for it."""

    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    reason: RejectionReason
    text: str


def rejected(batch: RecordBatch, place: int, reason: RejectionReason, column: str = "") -> Rejection:
    """``column`` names what is at fault."""
    headers = batch.headers[place].as_py()
    return Rejection(
        batch.partitions[place].as_py(),
        batch.offsets[place].as_py(),
        batch.timestamps[place].as_py(),
        batch.keys[place].as_py(),
        batch.values[place].as_py(),
        None if headers is None else [(each["key"], each["value"]) for each in headers],
        reason,
        TEXTS[reason] + (f": {column}" if column else ""),
    )
