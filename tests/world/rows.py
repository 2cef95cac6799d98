"""Rows as the world compares them: every value by its text, so that nothing is equal that only nearly is.

DuckDB finds 30 days equal to one month, and Python forgets the nanoseconds of a timestamp; their texts differ. Only
-0.0 is 0.0: Parquet's dictionary takes one for the other, so no lake keeps them apart. Types are compared on their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from tests.world.duck import name

Cell = str | None
Row = tuple[Cell, ...]
Rows = Mapping[Row, int]
"""A multiset: how often each row is there."""


@dataclass(frozen=True)
class Column:
    """A name, and the type as DuckDB declares it."""

    name: str
    type: str


def columns_of(con: duckdb.DuckDBPyConnection, table: str) -> tuple[Column, ...]:
    """The columns of ``table``, which may end in ``AT (VERSION => n)``."""
    described = con.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {table})").fetchall()
    return tuple(Column(*column) for column in described)


def rows_of(con: duckdb.DuckDBPyConnection, table: str, columns: Sequence[Column], where: str = "true") -> Counter[Row]:
    texts = ", ".join(map(text_of, columns))
    return Counter(con.execute(f"SELECT {texts} FROM {table} WHERE {where}").fetchall())


def text_of(column: Column) -> str:
    """A value of the column as it is compared."""
    plain = name(column.name)
    return f"CAST({plain} + 0 AS VARCHAR)" if column.type in ("DOUBLE", "FLOAT") else f"CAST({plain} AS VARCHAR)"


def plain(row: Row) -> Row:
    """The row as ``rows_of`` reads it, where no 0.0 has a sign."""
    return tuple("0.0" if cell == "-0.0" else cell for cell in row) if "-0.0" in row else row


def minus(left: Rows, right: Rows) -> list[Row]:
    """Rows that ``left`` has more often, as often as that."""
    return [row for row, times in left.items() for _ in range(times - right.get(row, 0))]
