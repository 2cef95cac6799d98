"""Batches of records and what becomes of them, as plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from services.applier.records.column_names import RESCUED
from services.applier.records.decoding import Schemas
from services.applier.records.parse import parse
from services.applier.records.parsed_records import ParsedRecords
from services.applier.records.record_batch import HEADERS, RecordBatch
from services.applier.records.record_format import Metadata, RecordFormat
from shared.lake.catalog.reader import Column

OFFSET = Metadata.OFFSET.column
BARE = RecordFormat(metadata=(Metadata.OFFSET,))
"""As little as a table can have."""
NOW = datetime(2026, 11, 26, tzinfo=UTC)


def in_bytes(value: Any) -> bytes | None:
    """Bytes and null as they are, a text in UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def batch_from(
    values: Sequence[Any],
    *,
    keys: Sequence[Any] | None = None,
    partitions: Sequence[int] | None = None,
    first_offset: int = 0,
) -> RecordBatch:
    count = len(values)
    return RecordBatch(
        partitions=pa.array(partitions or [0] * count, pa.int32()),
        offsets=pa.array(range(first_offset, first_offset + count), pa.int64()),
        timestamps=pa.array([0] * count, pa.timestamp("ms", "UTC")),
        keys=pa.array([in_bytes(key) for key in keys or [None] * count], pa.large_binary()),
        values=pa.array([in_bytes(value) for value in values], pa.large_binary()),
        headers=pa.nulls(count, HEADERS),
    )


class Table:
    """A destination that takes batch after batch, as dictionaries without what is null, and without the offset that
    ``BARE`` tables have."""

    def __init__(self, con: duckdb.DuckDBPyConnection, form: RecordFormat = BARE, columns: Sequence[Column] = ()):
        self._con = con
        self.form = form
        self.columns: tuple[Column, ...] = tuple(columns)
        self._hidden = OFFSET if form.metadata == BARE.metadata else ""
        self.rows: list[dict[str, Any]] = []
        self.last: ParsedRecords

    def take(self, values: Sequence[Any], *, schemas: Schemas | None = None, **how: Any) -> list[dict[str, Any]]:
        return self.take_batch(batch_from(values, **how), schemas)

    def take_shuffled(self, order: Sequence[int], values: Sequence[Any], **how: Any) -> list[dict[str, Any]]:
        """As ``take``, the records of a batch being in another order than their offsets."""
        batch = batch_from(values, **how)
        return self.take_batch(
            RecordBatch(**{name: column.take(pa.array(order)) for name, column in vars(batch).items()})
        )

    def take_batch(self, batch: RecordBatch, schemas: Schemas | None = None) -> list[dict[str, Any]]:
        """The new rows."""
        self.last = parsed = parse(self._con, batch, self.form, self.columns, NOW, schemas=schemas)
        try:
            rows = self.shown(parsed.rows)
            self.touched = None if parsed.touched is None else self.shown(parsed.touched)
        finally:
            parsed.drop()
        self.columns = parsed.columns
        self.rows += rows
        return rows

    def shown(self, name: str) -> list[dict[str, Any]]:
        found = self._con.execute(f"SELECT * FROM {name}")
        names = [each[0] for each in found.description or ()]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None and name != self._hidden}
            for row in found.fetchall()
        ]

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns if column.name != self._hidden}

    @property
    def reasons(self) -> dict[int, str]:
        return {each.offset: each.reason.value for each in self.last.rejected}


def object_of(row: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """The record that a row was made of, without its nulls."""
    fields = {name: json.loads(value) if types[name] == "JSON" else value for name, value in row.items()}
    return {**fields.pop(RESCUED, {}), **fields}
