"""The first file of a commit to a partitioned table: it holds values of the columns whose bounds it decides (H24).

Of a column without bounds, DuckLake takes them from the first of several files of a commit. Where that has no value of
the column, the bounds stay absent, and the next insert writes its own alone: a stock reader misses the rows outside them.
So a few rows of a seed, one for each column, go to a file of no partition before the same transaction partitions the
table. Files of no partition are found beside partitions by columns and times; H17 is of buckets alone. Of later rows,
the row goes first that has values of the most columns without bounds, which mostly is one column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import duckdb

from services.applier.apply.carry import rows_where
from services.applier.apply.reading import Reading
from shared.lake.pruning import TEXT
from shared.lake.sql import columns as column_list
from shared.lake.sql import ident, literal

FLOATS = ("FLOAT", "DOUBLE")


def insert_first(con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int) -> tuple[int, ...]:
    """Insert a row for each column into the empty table, which has no partitions; returns their places in the reading,
    where none is inserted again."""
    bounded = [each for column in reading.columns for each in _bounded(reading, ident(column.name), column.type)]
    picked = ", ".join(f"any_value(rowid) FILTER ({each})" for each in bounded)
    return _insert_these(con, table, reading, number, _picked(reading, number, picked))


def insert_fullest(
    con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, known: Collection[str]
) -> tuple[int, ...]:
    """Insert the row that has a value of the most columns but those ``known`` to have bounds; returns its place, if
    there is such a row. ``known`` are names in lower case."""
    fresh = [column for column in reading.columns if column.name.lower() not in known]
    bounded = [each for column in fresh for each in _bounded(reading, ident(column.name), column.type)]
    if not bounded:
        return ()
    values = " + ".join(f"CAST(coalesce({each}, false) AS INTEGER)" for each in bounded)
    picked = f"arg_max(rowid, {values}) FILTER ({values} > 0)"
    return _insert_these(con, table, reading, number, _picked(reading, number, picked))


def insert_others(
    con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, places: Sequence[int]
) -> int:
    """Insert all rows but those in ``places``; returns how many."""
    return _insert_where(con, table, reading, number, f"rowid NOT IN ({_listed(places)})")


def _insert_these(
    con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, places: tuple[int, ...]
) -> tuple[int, ...]:
    if places:
        _insert_where(con, table, reading, number, f"rowid IN ({_listed(places)})")
    return places


def _insert_where(con: duckdb.DuckDBPyConnection, table: str, reading: Reading, number: int, condition: str) -> int:
    names = column_list(tuple(column.name for column in reading.columns))
    with rows_where(con, reading, number, condition) as rows:
        return int(con.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {rows}").fetchall()[0][0])


def _picked(reading: Reading, number: int, aggregates: str) -> tuple[int, ...]:
    """The places that aggregates over a destination's rows pick."""
    rows = f"{reading.memory('rows')} WHERE {reading.number_column} = {number:d}"
    found = reading.con.execute(f"SELECT {aggregates} FROM {rows}").fetchall()[0]
    return tuple(sorted({int(place) for place in found if place is not None}))


def _bounded(reading: Reading, value: str, declared: str) -> Iterator[str]:
    """For each part of a column that has bounds of its own, a condition that holds where it has a value with bounds."""
    kind = reading.con.sqltype(declared)
    if kind.id == "struct":
        for name, field in kind.children:
            yield from _bounded(reading, f"struct_extract({value}, {literal(name)})", str(field))
    elif declared == TEXT:
        yield f"NOT contains({value}, chr(0))"
    elif declared in FLOATS:
        yield f"NOT isnan({value})"
    else:
        yield f"{value} IS NOT NULL"


def _listed(places: Sequence[int]) -> str:
    return ", ".join(f"{place:d}" for place in places)
