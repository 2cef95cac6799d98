"""A data file of few rows, which costs Arrow a fraction of the CPU of a COPY: most applies bring a handful.

It writes the types whose files were held against those of a COPY (``tests/fast/shared/lake/direct/test_few_rows.py``).
Whatever else is in a row is left to DuckDB, such as a DOUBLE: of NaN, which DuckDB orders last, Arrow tells no bound.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shared.lake.columns.history import Field
from shared.lake.direct.statistics import FileColumn, kind_of, without_nul

DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
MOST_DIGITS = 18
"""Of a decimal that a file has as an integer."""

LONGEST_BOUND = 255
"""Bytes. Of a longer text DuckDB keeps a part as the bound, or none."""

EPOCH = datetime(1970, 1, 1)

Bounds = tuple[str | None, str | None]


def _text(value: str) -> str:
    if len(value.encode()) > LONGEST_BOUND:
        raise ValueError(value)
    return value


def _day(days: int) -> str:
    return date.fromordinal(EPOCH.toordinal() + days).isoformat()


def _moment(micros: int) -> str:
    said = (EPOCH + timedelta(microseconds=micros)).isoformat(" ")
    return said.rstrip("0") if "." in said else said


@dataclass(frozen=True)
class Kind:
    """A type that Arrow writes: as what DuckDB hands it over, how a bound is spelled, of what it is compared by, and
    as what it is written, where these are others.

    ``spell`` raises ValueError or OverflowError for a bound that DuckDB has to spell, such as a time before Christ.
    """

    arrow: pa.DataType
    spell: Callable[[Any], str]
    compared: pa.DataType | None = None
    written: pa.DataType | None = None


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TIMESTAMP = Kind(pa.timestamp("us"), _moment, compared=pa.int64())
KINDS: Mapping[str, Kind] = {
    **{name: Kind(pa.type_for_alias(name), str) for name in INTEGERS},
    "boolean": Kind(pa.bool8(), lambda value: str(int(value)), written=pa.bool_()),
    "varchar": Kind(pa.string(), _text),
    "date": Kind(pa.date32(), _day, compared=pa.int32()),
    "timestamp": TIMESTAMP,
    "timestamp_us": TIMESTAMP,
    "timestamptz": Kind(pa.timestamp("us", "UTC"), lambda micros: f"{_moment(micros)}+00", compared=pa.int64()),
}
"""By DuckLake's names; decimals have parameters."""


@dataclass(frozen=True)
class EncodedRows:
    """A Parquet file as bytes, and what it holds of each column."""

    content: bytes
    columns: tuple[FileColumn, ...]


@dataclass(frozen=True)
class _Column:
    """What is written of a column; its bounds are None where it has no value."""

    field: Field
    values: pa.ChunkedArray
    least: str | None
    greatest: str | None

    @property
    def parquet(self) -> pa.Field:
        return parquet_field(self.field.name, self.values.type, self.field.id)

    def described(self, size: int) -> FileColumn:
        return FileColumn(
            column_id=self.field.id,
            kind=kind_of(self.field.type),
            bytes=size,
            values=len(self.values) - self.values.null_count,
            nulls=self.values.null_count,
            least=without_nul(self.least, ""),
            greatest=without_nul(self.greatest, "\x01"),
            has_nan=None,
        )


def encode(rows: pa.Table, fields: Sequence[Field]) -> EncodedRows | None:
    """``rows`` in the columns of ``fields``, whose names they have in any case; None where a COPY has to write them."""
    there = {name.lower(): number for number, name in enumerate(rows.column_names)}
    columns = list[_Column]()
    for field in fields:
        column = _column(field, rows.column(there[field.name.lower()]))
        if column is None:
            return None
        columns.append(column)
    schema = pa.schema([column.parquet for column in columns])
    content, metadata = io.BytesIO(), list[pq.FileMetaData]()
    pq.write_table(
        pa.table([column.values for column in columns], schema=schema),
        content,
        store_schema=False,
        store_decimal_as_integer=True,
        metadata_collector=metadata,
    )
    group = metadata[0].row_group(0)
    sizes = (group.column(number).total_compressed_size for number in range(len(columns)))
    described = tuple(column.described(size) for column, size in zip(columns, sizes, strict=True))
    return EncodedRows(content.getvalue(), described)


def parquet_field(name: str, arrow_type: pa.DataType, field_id: int) -> pa.Field:
    """A column of a file, by whose id DuckLake knows it."""
    return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(field_id)})


def _column(field: Field, values: pa.ChunkedArray) -> _Column | None:
    """With the least and the greatest value as DuckLake spells them; None for what a COPY has to write."""
    kind = _kind(field.type.lower())
    if kind is None or values.type != kind.arrow:
        return None
    written = values if kind.written is None else values.cast(kind.written)
    found = pc.min_max(written if kind.compared is None else written.cast(kind.compared))
    least, greatest = found["min"].as_py(), found["max"].as_py()
    if least is None:
        return _Column(field, written, None, None)
    try:
        return _Column(field, written, kind.spell(least), kind.spell(greatest))
    except (ValueError, OverflowError):
        return None


def _kind(declared: str) -> Kind | None:
    found = DECIMAL.fullmatch(declared)
    if found is None:
        return KINDS.get(declared)
    digits, scale = int(found[1]), int(found[2])
    if not scale < digits <= MOST_DIGITS:  # of as many after the point DuckDB spells none before it
        return None
    return Kind(pa.decimal128(digits, scale), lambda value: f"{value:f}")
