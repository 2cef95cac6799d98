"""Brings what a reading holds for one destination into the instance that writes there.

Rows travel as Arrow, which keeps every type of DuckLake's exactly but VARIANT, which is refused by its column's
name. Neither instance sees more of the other than these rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb
import pyarrow as pa

from services.applier.apply.source.parcels import Parcels, sorted_parcels
from services.applier.apply.source.reading import Reading
from shared.contracts.errors import DestinationError
from shared.lake.connection.engine import release
from shared.lake.direct.positions import Touched
from shared.lake.sql import columns, path

FEW_ROWS, FEW_BYTES = 2_000, 4_000_000
"""So many are fetched at once; what is more is fetched as it is written, in bites of about so many bytes."""

MOST_ROWS = 100_000
"""Of a bite."""


TOGETHER_ROWS, TOGETHER_BYTES = 200_000, 16_000_000
"""So many rows of all destinations of a reading are fetched at once, instead of each destination's by itself."""

ROWS, TOUCHED = "rows", "touched"


def carry_touched(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> str:
    """The touched keys of a destination as a temporary table of ``con``, whose name is returned."""
    name = path("temp", "main", f"touched_{reading.number}")
    keys = columns(_key_names(reading))
    with _incoming(con, reading, TOUCHED, number, count) as found:
        made = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {keys} FROM {found}").fetchall()
    require_all(int(made[0][0]), count, "touched keys")
    return name


@contextlib.contextmanager
def touched_of(con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int) -> Iterator[Touched]:
    """The touched keys of a destination: in memory where they are few, else a temporary table of ``con``."""
    rows = _in_memory(reading, TOUCHED, number, count)
    if rows is not None:
        require_all(rows.num_rows, count, "touched keys")
        yield Touched(con, rows)
        return
    name = carry_touched(con, reading, number, count)
    try:
        yield Touched(con, None, spilling=name)
    finally:
        with contextlib.suppress(duckdb.Error):  # an error before it, which ends the connection
            con.execute(f"DROP TABLE IF EXISTS {name}")


def require_all(came: int, counted: int, what: str) -> None:
    """Raises ``internal`` where not all has come that a reading holds: then none of it may be committed."""
    if came != counted:
        raise DestinationError(
            "internal",
            f"{came} of {counted} {what} came from the reading of the source; nothing was committed",
            "unexpected: did anything else write to the folder of temporary files? It is tried again by itself",
        )


@contextlib.contextmanager
def rows_of(
    con: duckdb.DuckDBPyConnection, reading: Reading, number: int, count: int, few: pa.Table | None = None
) -> Iterator[str]:
    """What ``con`` can scan once for the rows of a destination, in the reading's columns. ``few``: these rows, where
    they were fetched already."""
    with _incoming(con, reading, ROWS, number, count, few) as found:
        yield found


def few_rows_of(reading: Reading, number: int, count: int) -> pa.Table | None:
    """The rows of a destination in memory, in the order in which ``rows_of`` has them; None where they are many."""
    return _in_memory(reading, ROWS, number, count)


def _key_names(reading: Reading) -> tuple[str, ...]:
    return tuple(f"k{i}" for i in range(len(reading.keys)))


def _names(reading: Reading, kind: str) -> tuple[str, ...]:
    if kind == TOUCHED:
        return _key_names(reading)
    hidden = () if reading.left_out is None else (reading.left_out.place_column,)
    return (*(column.name for column in reading.columns), *hidden)


def _number_column(reading: Reading, kind: str) -> str:
    return "d" if kind == TOUCHED else reading.number_column


def _query(reading: Reading, kind: str, number: int) -> str:
    wanted = columns(_names(reading, kind))
    return f"SELECT {wanted} FROM {reading.memory(kind)} WHERE {_number_column(reading, kind)} = {number:d}"


def _are_few(reading: Reading, count: int) -> bool:
    return count <= FEW_ROWS and count * max(1.0, reading.row_bytes) <= FEW_BYTES


def _in_memory(reading: Reading, kind: str, number: int, count: int) -> pa.Table | None:
    """Rows of one destination, if they are few."""
    if not _are_few(reading, count):
        return None
    parcels = reading.fetched.get(kind, lambda: _fetch_all(reading, kind))
    if parcels is not None:
        return parcels.of(number)
    with _asking(reading, _query(reading, kind, number)) as source:
        return source.to_arrow_table()


def _fetch_all(reading: Reading, kind: str) -> Parcels | None:
    """The rows of all destinations of a reading; None where they are many, or one destination's."""
    counts = reading.counts.values()
    total = sum(each.touched if kind == TOUCHED else each.upserts for each in counts)
    if len(counts) < 2 or total > TOGETHER_ROWS or total * max(1.0, reading.row_bytes) > TOGETHER_BYTES:
        return None
    wanted = columns((*_names(reading, kind),))
    with _asking(reading, f"SELECT {_number_column(reading, kind)}, {wanted} FROM {reading.memory(kind)}") as source:
        return sorted_parcels(source.to_arrow_table())


@contextlib.contextmanager
def _asking(reading: Reading, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor of the reading's instance that has been asked."""
    source = reading.con.cursor()
    try:
        yield source.execute(query)
    finally:
        release(source)


@contextlib.contextmanager
def _incoming(
    con: duckdb.DuckDBPyConnection, reading: Reading, kind: str, number: int, count: int, few: pa.Table | None = None
) -> Iterator[str]:
    few = _in_memory(reading, kind, number, count) if few is None else few
    if few is not None:
        with _registered(con, reading, few.__arrow_c_stream__()) as found:
            yield found
        return
    with streamed(con, reading, _query(reading, kind, number)) as found:
        yield found


@contextlib.contextmanager
def streamed(con: duckdb.DuckDBPyConnection, reading: Reading, query: str) -> Iterator[str]:
    """What ``con`` can scan once for a query of ours in the reading's instance.

    It is scanned as a bare stream. A reader of PyArrow's would be handed to its scanner, which fetches up to a gigabyte
    ahead of what is written.
    """
    with (
        _asking(reading, query) as source,
        _registered(con, reading, source.to_arrow_reader(_batch(reading)).__arrow_c_stream__()) as found,
    ):
        yield found


def _batch(reading: Reading) -> int:
    return max(1, min(MOST_ROWS, int(FEW_BYTES / max(1.0, reading.row_bytes))))


@contextlib.contextmanager
def _registered(con: duckdb.DuckDBPyConnection, reading: Reading, rows: object) -> Iterator[str]:
    name = f"_viaduck_incoming_{reading.number}"
    con.register(name, rows)
    try:
        yield path("temp", "main", name)
    finally:
        with contextlib.suppress(duckdb.Error):  # a transaction that failed, which takes it away itself
            con.unregister(name)
