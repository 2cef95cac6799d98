from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.applier.records.record_batch import batch_of
from services.applier.records.rejection import RejectionReason, rejected


@dataclass
class Message:
    """As librdkafka's, whose fields are methods."""

    fields: tuple[int, int, tuple[int, int], bytes | None, bytes | None, Any]

    def partition(self) -> int:
        return self.fields[0]

    def offset(self) -> int:
        return self.fields[1]

    def timestamp(self) -> tuple[int, int]:
        return self.fields[2]

    def key(self) -> bytes | None:
        return self.fields[3]

    def value(self) -> bytes | None:
        return self.fields[4]

    def headers(self) -> Any:
        return self.fields[5]


MESSAGES = [
    Message((0, 5, (1, 1_000), None, b"\x00\xff", None)),
    Message((3, 2**40, (0, -1), b"", None, [("a", b"\xff"), ("a", None)])),
]


def test_messages_become_columns() -> None:
    batch = batch_of(MESSAGES)
    assert batch.partitions.to_pylist() == [0, 3]
    assert batch.offsets.to_pylist() == [5, 2**40]
    assert batch.timestamps.to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]
    assert batch.keys.to_pylist() == [None, b""]
    assert batch.values.to_pylist() == [b"\x00\xff", None]
    assert batch.headers.to_pylist() == [None, [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}]]


def test_no_messages_are_no_records() -> None:
    assert len(batch_of([])) == 0


def test_a_rejected_record_is_told_as_it_was_read() -> None:
    found = [rejected(batch_of(MESSAGES), place, RejectionReason.NOT_JSON) for place in range(2)]
    assert [(each.key, each.value) for each in found] == [(None, b"\x00\xff"), (b"", None)]
    assert [each.headers for each in found] == [None, [("a", b"\xff"), ("a", None)]]
    assert [each.text for each in found] == ["the value is not JSON"] * 2
