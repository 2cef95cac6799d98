"""The records of one fetch as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class KafkaMessage(Protocol):
    """What a Kafka client's message has."""

    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


@dataclass(frozen=True)
class RecordBatch:
    """Records in any order, each its partition and offset; all columns are of one length, and may be in chunks.

    ``partitions`` int32, ``offsets`` int64, ``timestamps`` timestamp[ms, UTC] or null, ``keys`` and ``values``
    large_binary or null, ``headers`` lists of pairs (name, bytes or null) or null.
    """

    partitions: pa.Array | pa.ChunkedArray
    offsets: pa.Array | pa.ChunkedArray
    timestamps: pa.Array | pa.ChunkedArray
    keys: pa.Array | pa.ChunkedArray
    values: pa.Array | pa.ChunkedArray
    headers: pa.Array | pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """Of keys, values and headers."""
        headers = pc.list_flatten(self.headers)
        parts = (self.keys, self.values, *(pc.struct_field(headers, [each]) for each in range(2)))
        lengths = (pc.sum(pc.binary_length(each)).as_py() for each in parts)
        return sum(length or 0 for length in lengths)

    def taken(self, places: Sequence[int]) -> RecordBatch:
        """Only the records at these places, in their order."""
        wanted = pa.array(places, pa.int64())
        return RecordBatch(**{each.name: getattr(self, each.name).take(wanted) for each in fields(self)})


def batch_of(messages: Sequence[KafkaMessage]) -> RecordBatch:
    """The columns of messages without an error, as ``Consumer.consume`` returns them."""
    headers = [message.headers() for message in messages]
    return RecordBatch(
        partitions=pa.array([message.partition() for message in messages], pa.int32()),
        offsets=pa.array([message.offset() for message in messages], pa.int64()),
        timestamps=_timestamps([message.timestamp() for message in messages]),
        keys=pa.array([message.key() for message in messages], pa.large_binary()),
        values=pa.array([message.value() for message in messages], pa.large_binary()),
        headers=pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(messages), HEADERS),
    )


def _timestamps(found: Sequence[tuple[int, int]]) -> pa.Array:
    """Of pairs of a kind, 0 where there is none, and milliseconds since the epoch."""
    return pa.array([ms if kind else None for kind, ms in found], pa.timestamp("ms", "UTC"))


def together(batches: Sequence[RecordBatch]) -> RecordBatch:
    """One of them all, in their order."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return batch_of([])
    return RecordBatch(**{name: pa.concat_arrays(found) for name, found in _chunks(batches).items()})


def beside(batches: Sequence[RecordBatch]) -> RecordBatch:
    """The same where nothing may be copied: its columns are in chunks. There is at least one."""
    return RecordBatch(**{name: pa.chunked_array(found) for name, found in _chunks(batches).items()})


def _chunks(batches: Sequence[RecordBatch]) -> dict[str, list[pa.Array]]:
    names = [each.name for each in fields(RecordBatch)]
    return {name: [chunk for batch in batches for chunk in _chunks_of(getattr(batch, name))] for name in names}


def _chunks_of(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
