"""What a lake is told after a seed, outside any transaction, so that the applies that follow are cheap.

A seed that dies before this leaves DuckLake's defaults, which are as exact and somewhat slower.
"""

from __future__ import annotations

import contextlib

import duckdb

from shared.errors import ViaduckError
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.pool import OpenLake
from shared.lake.sql import ident, literal
from shared.messages import Destination

CURSOR_INLINED_ROWS = 100


def settle(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> None:
    """Keep the cursor in the catalog and the data in files, and spare each apply what it would look for in vain."""
    cursor = (SCHEMA, cursor_name(destination.pipeline, destination.destination))
    data = (destination.schema_name, destination.table)
    for (schema, table), rows in ((cursor, CURSOR_INLINED_ROWS), (data, 0)):
        with contextlib.suppress(duckdb.Error):
            con.execute(
                f"CALL {ident(lake.alias)}.set_option('data_inlining_row_limit', {rows},"
                f" schema => {literal(schema)}, table_name => {literal(table)})"
            ).fetchall()
    if lake.lake.sqlite_file is None:
        with contextlib.suppress(duckdb.Error, ViaduckError):  # a role that may not create tables
            for table_id in lake.catalog.table_ids((cursor, data)):
                _make_table_of_inlined_deletes(con, lake, table_id)


def _make_table_of_inlined_deletes(con: duckdb.DuckDBPyConnection, lake: OpenLake, table_id: int) -> None:
    """Make, empty, what DuckLake makes at the first delete that it inlines.

    Every transaction looks for it, and one that is missing is looked for again each time: two joins of Postgres's own
    catalog for each table, a quarter of an apply.
    """
    schema = ident(lake.lake.schema)
    made = (
        f"CREATE TABLE IF NOT EXISTS {schema}.ducklake_inlined_delete_{table_id}"
        " (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)"
    )
    metadata = f"__ducklake_metadata_{lake.alias}"
    con.execute(f"CALL postgres_execute({literal(metadata)}, {literal(made)})").fetchall()
