"""A batch as the table that DuckDB scans, without the records that it could not even read as text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import KeyFormat, RecordFormat, ValueFormat
from services.applier.records.rejection import RejectionReason


def too_large(batch: RecordBatch, form: RecordFormat) -> dict[int, tuple[RejectionReason, str]]:
    lengths = pc.add(_lengths(batch.keys), _lengths(batch.values))
    found = pc.indices_nonzero(pc.greater(lengths, form.max_record_bytes)).to_pylist()
    return dict.fromkeys(found, (RejectionReason.TOO_LARGE, ""))


def not_text(batch: RecordBatch, form: RecordFormat) -> dict[int, tuple[RejectionReason, str]]:
    """Places of records that are not UTF-8 where they are to be text."""
    found: dict[int, tuple[RejectionReason, str]] = {}
    if _key_is_text(form) and form.key_is_used:
        found.update((place, (RejectionReason.KEY_INVALID, "")) for place in _not_utf8(batch.keys))
    if form.value is not ValueFormat.BYTES:
        found.update((place, (RejectionReason.INVALID_UTF8, "")) for place in _not_utf8(batch.values))
    return found


def first_value(batch: RecordBatch) -> bytes:
    """Empty where no record has one."""
    return next((value.as_py() for value in batch.values if value.is_valid), b"")


def fields_in(first: str | bytes) -> tuple[str, ...]:
    """The fields of a batch's first value, which most records have if they are made by one program."""
    try:
        found = json.loads(first)
        "".join(found).encode()
    except (ValueError, RecursionError, TypeError):
        return ()
    return tuple(found) if isinstance(found, dict) else ()


def arrow_table(batch: RecordBatch, form: RecordFormat, without: Collection[int], first: int = 0) -> pa.Table:
    """Columns i (place, from ``first`` on), p, o, t, k, v, h; nothing is copied unless records are left out."""
    table = pa.table(
        {
            "i": pa.array(range(first, first + len(batch)), pa.int64()),
            "p": batch.partitions,
            "o": batch.offsets,
            "t": batch.timestamps,
            "k": batch.keys,
            "v": batch.values,
            "h": batch.headers,
        }
    )
    if without:
        table = table.filter(pc.invert(pc.is_in(table["i"], pa.array(list(without), pa.int64()))))
    if form.value is not ValueFormat.BYTES:
        table = _as_text(table, "v")
    return _as_text(table, "k") if _key_is_text(form) and form.key_is_used else table


def _as_text(table: pa.Table, name: str) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.large_string()))


def _key_is_text(form: RecordFormat) -> bool:
    return form.key is KeyFormat.TEXT or form.key.is_json


def _not_utf8(texts: pa.Array) -> Iterator[int]:
    try:
        texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        for place, text in enumerate(texts.to_pylist()):
            try:
                (text or b"").decode()
            except UnicodeDecodeError:
                yield place


def _lengths(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(texts), 0)
