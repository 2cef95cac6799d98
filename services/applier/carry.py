"""Brings what a reading holds for one destination into the instance that writes there.

Rows travel as Arrow, which keeps every type of DuckLake's but VARIANT to the letter; a table that has one goes by a
DuckDB file between the two. Neither instance sees more of the other than these rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from services.applier.reading import Reading
from shared.lake import spill
from shared.lake.engine import release
from shared.lake.sql import columns, ident, literal, path

FEW_ROWS, FEW_BYTES = 2_000, 4_000_000
"""So many are fetched at once; what is more is fetched and written side by side, in bites of about so many bytes."""

MOST_ROWS = 100_000
"""Of a bite."""


def carry_touched(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> str:
    """The touched keys of a destination as a temporary table of ``con``, whose name is returned."""
    name = path("temp", "main", f"touched_{reading.number}")
    keys = columns(tuple(f"k{i}" for i in range(len(reading.keys))))
    query = f"SELECT {keys} FROM {reading.memory('touched')} WHERE d = {number}"
    with _incoming(con, reading, query, count, reading.keys) as found:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {keys} FROM {found}")
    return name


@contextlib.contextmanager
def rows_of(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> Iterator[str]:
    """What ``con`` can scan once for the rows of a destination, in the reading's columns."""
    names = tuple(column.name for column in reading.columns)
    query = f"SELECT {columns(names)} FROM {reading.memory('rows')} WHERE {reading.number_column} = {number}"
    with _incoming(con, reading, query, count, names) as found:
        yield found


@contextlib.contextmanager
def _incoming(
    con: duckdb.DuckDBPyConnection, reading: Reading, query: str, count: int, names: tuple[str, ...]
) -> Iterator[str]:
    wanted = {name.lower() for name in names}
    by_file = any("VARIANT" in each.type.upper() for each in reading.columns if each.name.lower() in wanted)
    source = reading.con.cursor()
    try:
        with _by_file(source, con, query) if by_file else _by_arrow(source, con, reading, query, count) as found:
            yield found
    finally:
        release(source)


@contextlib.contextmanager
def _by_arrow(
    source: duckdb.DuckDBPyConnection, con: duckdb.DuckDBPyConnection, reading: Reading, query: str, count: int
) -> Iterator[str]:
    name = f"_viaduck_incoming_{reading.number}"
    source.execute(query)
    row_bytes = max(1.0, reading.row_bytes)
    if count <= FEW_ROWS and count * row_bytes <= FEW_BYTES:
        con.register(name, source.to_arrow_table())
    else:
        con.register(name, source.to_arrow_reader(max(1, min(MOST_ROWS, int(FEW_BYTES / row_bytes)))))
    try:
        yield path("temp", "main", name)
    finally:
        with contextlib.suppress(duckdb.Error):  # a transaction that failed, which takes it away itself
            con.unregister(name)


@contextlib.contextmanager
def _by_file(source: duckdb.DuckDBPyConnection, con: duckdb.DuckDBPyConnection, query: str) -> Iterator[str]:
    """By a file in the writing instance's own temporary folder, the only place where both may look."""
    ((own,),) = con.execute("SELECT current_setting('temp_directory')").fetchall()
    Path(own).mkdir(mode=0o700, exist_ok=True)
    file = Path(own) / f"{spill.folder().name}.carried"
    name = f"carried_{file.stem}"
    try:
        source.execute(f"ATTACH {literal(str(file))} AS {ident(name)} (STORAGE_VERSION 'latest')")
        source.execute(f"CREATE TABLE {path(name, 'main', 'rows')} AS {query}")
        source.execute(f"DETACH {ident(name)}")
        con.execute(f"ATTACH {literal(str(file))} AS {ident(name)} (READ_ONLY)")
        yield path(name, "main", "rows")
    finally:
        with contextlib.suppress(duckdb.Error):
            source.execute(f"DETACH DATABASE IF EXISTS {ident(name)}")
        with contextlib.suppress(duckdb.Error):  # inside a transaction that read it; it ends with the instance
            con.execute(f"DETACH DATABASE IF EXISTS {ident(name)}")
        file.unlink(missing_ok=True)
