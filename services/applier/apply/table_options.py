"""What a lake is told after a seed, outside any transaction, so that the applies that follow are cheap.

A seed that dies before this is repeated, and the lake is told then. Until it is, DuckLake's defaults hold: small
changes stay in the catalog until an upkeep.
"""

from __future__ import annotations

import contextlib

import duckdb

from services.applier.model.task import Target
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Destination
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.pool import OpenLake
from shared.lake.sql import ident

CURSOR_INLINED_ROWS = 100


def settle(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """Keep the cursor in the catalog and the data in files, and spare each apply what it would look for in vain."""
    _set_limits(con, lake, target)
    lake.settled.add(_life(target))
    if lake.lake.sqlite_file is None:
        with contextlib.suppress(duckdb.Error, ViaduckError):  # a role that may not create tables
            for table_id in lake.catalog.table_ids(tables_of(target.destination)):
                _make_table_of_inlined_deletes(con, lake, table_id)


def reload_options(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, *, was_open: bool) -> None:
    """Read the options of the item's generation again, if a lake that ``was_open`` may have been opened before them.

    Otherwise it would keep rows in the catalog, and later the cursor in files, after another worker created the tables.
    """
    if is_settled(lake, target):
        return
    if was_open:
        _set_limits(con, lake, target)
    lake.settled.add(_life(target))


def is_settled(lake: OpenLake, target: Target) -> bool:
    return _life(target) in lake.settled


def _set_limits(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    for (schema, table), rows in ((_cursor(target.destination), CURSOR_INLINED_ROWS), (_data(target.destination), 0)):
        with lake.loading, contextlib.suppress(duckdb.Error):
            con.execute(
                f"CALL {ident(lake.alias)}.set_option('data_inlining_row_limit', ?, schema => ?, table_name => ?)",
                [rows, schema, table],
            ).fetchall()


def _life(target: Target) -> tuple[str, int]:
    return target.destination.key, target.item.generation


def tables_of(destination: Destination) -> tuple[tuple[str, str], tuple[str, str]]:
    """(schema, table) of the cursor and of the data."""
    return _cursor(destination), _data(destination)


def _cursor(destination: Destination) -> tuple[str, str]:
    return SCHEMA, cursor_name(destination.pipeline, destination.destination)


def _data(destination: Destination) -> tuple[str, str]:
    return destination.schema_name, destination.table


def _make_table_of_inlined_deletes(con: duckdb.DuckDBPyConnection, lake: OpenLake, table_id: int) -> None:
    """Make, empty, what DuckLake makes at the first delete that it inlines.

    Every transaction looks for it, and a missing table is looked for again each time: two joins of Postgres's own
    catalog for each table, a quarter of an apply.
    """
    schema = ident(lake.lake.schema)
    made = (
        f"CREATE TABLE IF NOT EXISTS {schema}.ducklake_inlined_delete_{table_id}"
        " (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)"
    )
    metadata = f"__ducklake_metadata_{lake.alias}"
    con.execute("CALL postgres_execute(?, ?)", [metadata, made]).fetchall()
