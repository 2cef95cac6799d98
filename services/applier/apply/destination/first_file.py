"""The first file of a table that a seed partitions: it holds a value of each column that has any (H24).

Where a table had no rows yet, DuckLake takes the bounds of its columns from the first of a commit's files. Where that
has no value of a column, the bounds stay absent, and the next insert writes its own alone: a stock reader misses the
rows outside them. So a few rows, one for each column, go to a file of no partition, before the same transaction
partitions the table. Files of no partition are found beside partitions by columns and times; H17 is of buckets alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb

from services.applier.apply.source.carry import rows_where
from services.applier.apply.source.reading import Reading
from shared.lake.connection.engine import release
from shared.lake.pruning import TEXT
from shared.lake.sql import columns as column_list
from shared.lake.sql import ident

FLOATS = ("FLOAT", "DOUBLE")


def insert_first(con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int) -> tuple[int, ...]:
    """Insert a row for each column into the empty table, which has no partitions; returns their places in the reading,
    where none is inserted again."""
    places = _places(reading, number)
    if places:
        _insert_where(con, table, reading, number, f"rowid IN ({_listed(places)})")
    return places


def insert_others(
    con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, places: Sequence[int]
) -> int:
    """Insert all rows but those in ``places``; returns how many."""
    return _insert_where(con, table, reading, number, f"rowid NOT IN ({_listed(places)})")


def _insert_where(con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, condition: str) -> int:
    names = column_list(tuple(column.name for column in reading.columns))
    with rows_where(con, reading, number, condition) as rows:
        return int(con.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {rows}").fetchall()[0][0])


def _places(reading: Reading, number: int) -> tuple[int, ...]:
    con = reading.con.cursor()
    try:
        bounded = [each for column in reading.columns for each in _bounded(con, ident(column.name), column.type)]
        picked = ", ".join(f"any_value(rowid) FILTER ({each})" for each in bounded)
        rows = f"{reading.memory('rows')} WHERE {reading.number_column} = {number:d}"
        found = con.execute(f"SELECT {picked} FROM {rows}").fetchall()[0]
    finally:
        release(con)
    return tuple(sorted({int(place) for place in found if place is not None}))


def _bounded(con: duckdb.DuckDBPyConnection, value: str, declared: str) -> Iterator[str]:
    """For each part of a column that has bounds of its own, a condition that holds where it has a value with bounds."""
    if declared.startswith("STRUCT(") and (kind := con.sqltype(declared)).id == "struct":
        for name, field in kind.children:
            yield from _bounded(con, f"({value}).{ident(name)}", str(field))
    elif declared == TEXT:
        yield f"NOT contains({value}, chr(0))"
    elif declared in FLOATS:
        yield f"NOT isnan({value})"
    else:
        yield f"{value} IS NOT NULL"


def _listed(places: Sequence[int]) -> str:
    return ", ".join(f"{place:d}" for place in places)
