from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from services.applier.records.record_batch import batch_of, beside, together
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
    assert len(batch_of([])) == batch_of([]).bytes == 0


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [
        (None, b"12345", None, 5),
        (b"1234567", None, [], 7),
        (None, None, [("name", b"123"), ("name", None), ("", b"")], 11),
        (b"1", b"2", [("é", b"3")], 5),
        (None, None, None, 0),
    ],
)
def test_values_keys_and_headers_are_the_size_of_records(
    key: bytes | None, value: bytes | None, headers: Any, size: int
) -> None:
    other = Message((0, 1, (1, 1), b"key", b"value", None))
    assert batch_of([Message((0, 0, (1, 1), key, value, headers)), other]).bytes == size + 8


def test_a_rejected_record_is_told_as_it_was_read() -> None:
    found = [rejected(batch_of(MESSAGES), place, RejectionReason.NOT_JSON) for place in range(2)]
    assert [(each.key, each.value) for each in found] == [(None, b"\x00\xff"), (b"", None)]
    assert [each.headers for each in found] == [None, [("a", b"\xff"), ("a", None)]]
    assert [each.text for each in found] == ["the value is not JSON"] * 2


def test_batches_that_stand_beside_each_other_are_not_copied() -> None:
    batches = [batch_of(MESSAGES), batch_of(MESSAGES[:1])]
    before = pa.total_allocated_bytes()
    found = beside(batches)
    assert pa.total_allocated_bytes() == before
    assert found.offsets.to_pylist() == [5, 2**40, 5]
    assert len(found) == 3
    assert found.bytes == sum(each.bytes for each in batches)
    assert found.taken([2]).keys.to_pylist() == [None]


def test_batches_in_chunks_are_put_together_like_others() -> None:
    one = batch_of(MESSAGES)
    found = together([beside([one, one]), one])
    assert found.values.to_pylist() == [b"\x00\xff", None] * 3
    assert not isinstance(found.values, pa.ChunkedArray)
