"""Brings what a reading holds for one destination into the instance that writes there.

Rows travel as Arrow, which keeps every type of DuckLake's exactly but VARIANT, which is refused by its column's
name. Neither instance sees more of the other than these rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb

from services.applier.apply.reading import Reading
from shared.contracts.errors import DestinationError
from shared.lake.engine import release
from shared.lake.sql import columns, path

FEW_ROWS, FEW_BYTES = 2_000, 4_000_000
"""So many are fetched at once; what is more is fetched and written side by side, in bites of about so many bytes."""

MOST_ROWS = 100_000
"""Of a bite."""


def carry_touched(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> str:
    """The touched keys of a destination as a temporary table of ``con``, whose name is returned."""
    name = path("temp", "main", f"touched_{reading.number}")
    keys = columns(tuple(f"k{i}" for i in range(len(reading.keys))))
    query = f"SELECT {keys} FROM {reading.memory('touched')} WHERE d = {number}"
    with _incoming(con, reading, query, count) as found:
        made = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {keys} FROM {found}").fetchall()
    require_all(int(made[0][0]), count, "touched keys")
    return name


def require_all(came: int, counted: int, what: str) -> None:
    """Raises ``internal`` where not all has come that a reading holds: then none of it may be committed."""
    if came != counted:
        raise DestinationError(
            "internal",
            f"{came} of {counted} {what} came from the reading of the source; nothing was committed",
            "unexpected: did anything else write to the folder of temporary files? It is tried again by itself",
        )


@contextlib.contextmanager
def rows_of(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> Iterator[str]:
    """What ``con`` can scan once for the rows of a destination, in the reading's columns."""
    names = tuple(column.name for column in reading.columns)
    query = f"SELECT {columns(names)} FROM {reading.memory('rows')} WHERE {reading.number_column} = {number}"
    with _incoming(con, reading, query, count) as found:
        yield found


@contextlib.contextmanager
def _incoming(con: duckdb.DuckDBPyConnection, reading: Reading, query: str, count: int) -> Iterator[str]:
    source = reading.con.cursor()
    try:
        with _by_arrow(source, con, reading, query, count) as found:
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
