"""Values that an update at the source left out because it did not change them are those of the row that is there.

They are read in the transaction that replaces the row, after the cursor's compare-and-set: then the destination is
exactly where the reading begins. No value is made up: a row that can't tell what it is asked for refuses its record.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from services.applier.apply.destination.table_schema import columns_of
from services.applier.apply.source.carry import require_all, streamed
from services.applier.apply.source.reading import LeftOut, Reading
from shared.contracts.errors import DestinationError
from shared.lake.catalog.reader import Column
from shared.lake.pruning import FileLayout
from shared.lake.sql import ident, path

ENTRIES = "'\"MAP(VARCHAR,JSON)\"'"


class RowsLack(DestinationError):
    """The destination has no row, or none with the values, that the records at ``places`` of a reading ask for."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__(
            "value_refused",
            f"{len(places)} updates leave out values that they did not change, and no row is there to have them",
            "reseed the destination from a snapshot of the source table, then resume",
        )
        self.places = tuple(places)


def keep_left_out(
    con: duckdb.DuckDBPyConnection, table: str, reading: Reading, layout: FileLayout, harmless: Sequence[bool]
) -> None:
    """Remember, in a temporary table of ``con``, what rows of ``table`` have that are about to be replaced.

    Raises ``RowsLack`` where they have not all that is asked for.
    """
    asked = reading.left_out
    if asked is None:
        return
    have = columns_of(con, table) or ()
    keys = ", ".join(f"k{number:d}" for number in range(len(reading.keys)))
    name = _name(reading, "asking")
    with streamed(con, reading, f"SELECT place, {keys}, wanted, fields FROM {asked.asking}") as found:
        made = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM {found}").fetchall()
    require_all(int(made[0][0]), asked.count, "questions")
    shown = "".join(f", t.{ident(reading.columns[n].name)} AS c{n:d}" for n in _there(reading, asked, have))
    if _rescues(asked, have):
        shown += f", CAST(t.{ident(asked.rescued)} AS VARCHAR) AS rescued"
    same = reading.same_keys("t", "x", layout, harmless)
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {_name(reading, 'kept')} AS SELECT x.place, x.wanted, x.fields{shown}"
        f" FROM {table} AS t, {name} AS x WHERE {same} AND {_has_all(reading, asked, have)}"
    )
    lacking = con.execute(
        f"SELECT place FROM {name} AS x WHERE place NOT IN (SELECT place FROM {_name(reading, 'kept')}) ORDER BY place"
    ).fetchall()
    if lacking:
        raise RowsLack([place for (place,) in lacking])


def completed(con: duckdb.DuckDBPyConnection, reading: Reading, rows: str) -> str:
    """The query of the reading's columns of ``rows``, with what ``keep_left_out`` has remembered."""
    asked = reading.left_out
    if asked is None:
        return f"SELECT {_listed(reading)} FROM {rows}"
    kept = columns_of(con, _name(reading, "kept")) or ()
    there = {column.name for column in kept}
    shown = ", ".join(
        f"{_value(reading, asked, number, there)} AS {ident(column.name)}"
        for number, column in enumerate(reading.columns)
    )
    joined = f"{rows} AS r LEFT JOIN {_name(reading, 'kept')} AS k ON r.{ident(asked.place_column)} = k.place"
    return f"SELECT {shown} FROM {joined}"


def _value(reading: Reading, asked: LeftOut, number: int, there: set[str]) -> str:
    name = reading.columns[number].name
    own = f"r.{ident(name)}"
    if f"c{number:d}" in there:
        return f"CASE WHEN list_contains(k.wanted, {number:d}) THEN k.c{number:d} ELSE {own} END"
    if name == asked.rescued and "rescued" in there:
        return f"CASE WHEN k.place IS NULL THEN {own} ELSE {_merged(own)} END"
    return own


def _merged(own: str) -> str:
    """What was rescued of a row, with what was rescued before of the fields that it leaves out."""
    before = (
        f"list_filter(map_entries(from_json(k.rescued, {ENTRIES})),"
        " lambda e: list_contains(list_transform(k.fields, lambda f: f.name), e.key))"
    )
    now = f"coalesce(map_entries(from_json(CAST({own} AS VARCHAR), {ENTRIES})), [])"
    both = f"list_concat({now}, {before})"
    return f"CASE WHEN len({both}) > 0 THEN to_json(map_from_entries({both})) END"


def _has_all(reading: Reading, asked: LeftOut, have: Sequence[Column]) -> str:
    """Whether a row of the destination has each field that is asked for, in its column or rescued."""
    cases = "".join(
        f" WHEN {number:d} THEN t.{ident(reading.columns[number].name)} IS NOT NULL"
        for number in _there(reading, asked, have)
    )
    has = f"CASE f.at{cases} ELSE false END" if cases else "false"
    if _rescues(asked, have):
        has += f" OR coalesce(list_contains(json_keys(t.{ident(asked.rescued)}), f.name), false)"
    return f"len(list_filter(x.fields, lambda f: NOT ({has}))) = 0"


def _there(reading: Reading, asked: LeftOut, have: Sequence[Column]) -> list[int]:
    """Of the columns that are asked for, those that the table has before it gets new ones."""
    names = {column.name for column in have}
    return [number for number in asked.wanted if reading.columns[number].name in names]


def _rescues(asked: LeftOut, have: Sequence[Column]) -> bool:
    return any(column.name == asked.rescued for column in have)


def _listed(reading: Reading) -> str:
    return ", ".join(ident(column.name) for column in reading.columns)


def _name(reading: Reading, what: str) -> str:
    return path("temp", "main", f"{what}_{reading.number}")
