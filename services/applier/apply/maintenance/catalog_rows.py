"""Rows of a destination's catalog that DuckLake offers no way to remove."""

from __future__ import annotations

import duckdb

from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.connection.attach import metadata_of
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import path

POSITIONS_KEPT = 1_000
"""Snapshots of the lake for which its cursors can still be looked back at."""


def forget_positions(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> None:
    """Delete the cursor's rows that are long dead: each apply leaves one, and reads them all.

    DuckLake has no way for that but a flush, which would bring the living row to a file. They are read only by
    time travel of the cursor itself, further than ``POSITIONS_KEPT`` snapshots: conflicts are found by what
    snapshots say that they changed, and the row that counts never died.
    """
    dead = lake.catalog.head().snapshot - POSITIONS_KEPT
    for name in lake.catalog.inlined_into(SCHEMA, cursor_name(destination.pipeline, destination.destination)):
        _delete(con, lake, name, f"end_snapshot <= {dead:d}")


def forget_bounds(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> None:
    """Delete the bounds of columns that have become wider (H27), or have none though there are values (H24), outside of
    any transaction.

    An insert leaves a wider column without bounds, as it does one of which the first of its files has no value; and the
    next one writes its own alone: readers that believe them miss all other rows. Of a column without a row of
    statistics no insert makes any again.
    """
    for table, column in lake.catalog.doubtful_bounds(destination.schema_name, destination.table):
        _delete(con, lake, "ducklake_table_column_stats", f"table_id = {table:d} AND column_id = {column:d}")


def _delete(con: duckdb.DuckDBPyConnection, lake: OpenLake, table: str, condition: str) -> None:
    if lake.lake.sqlite_file is None:
        gone = f"DELETE FROM {path(lake.lake.schema, table)} WHERE {condition}"
        con.execute("CALL postgres_execute(?, ?)", [metadata_of(lake.alias), gone]).fetchall()
    else:
        con.execute(f"DELETE FROM {path(metadata_of(lake.alias), 'main', table)} WHERE {condition}")
