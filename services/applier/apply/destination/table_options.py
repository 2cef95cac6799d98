"""What a lake is told after a seed, outside any transaction, so that the applies that follow are cheap.

A seed that dies before this is repeated, and the lake is told then. Until it is, DuckLake's defaults hold: small
changes stay in the catalog until an upkeep.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import duckdb
import psycopg

from services.applier.model.task import Target
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.connection.attach import metadata_of
from shared.lake.connection.query import Question
from shared.lake.connection.statements import ask, tell
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import ident, path

CURSOR_INLINED_ROWS = 100

KEY = "data_inlining_row_limit"

ASKED = """
FROM (
    VALUES (CAST(:cursor_schema AS text), CAST(:cursor AS text), CAST(:cursor_rows AS text)), (:schema, :table, :rows)
) AS wanted (schema_name, table_name, value)
JOIN {}ducklake_schema s ON lower(s.schema_name) = lower(wanted.schema_name) AND s.end_snapshot IS NULL
JOIN {}ducklake_table t
    ON t.schema_id = s.schema_id AND lower(t.table_name) = lower(wanted.table_name) AND t.end_snapshot IS NULL
"""
"""Both tables, and the limit that each is to have."""

WRITE_LIMITS = f"""
WITH asked AS (
    SELECT t.table_id, wanted.value {ASKED}
), changed AS (
    UPDATE {{}}ducklake_metadata m SET value = asked.value FROM asked
    WHERE m.key = '{KEY}' AND m.scope = 'table' AND m.scope_id = asked.table_id
    RETURNING m.scope_id
), added AS (
    INSERT INTO {{}}ducklake_metadata (key, value, scope, scope_id)
    SELECT '{KEY}', value, 'table', table_id FROM asked
    WHERE table_id NOT IN (SELECT scope_id FROM changed)
)
SELECT table_id FROM asked
"""

WRITE_LIMITS_TO_A_FILE = (
    f"""
    DELETE FROM {{}}ducklake_metadata
    WHERE key = '{KEY}' AND scope = 'table' AND scope_id IN (SELECT t.table_id {ASKED})
    """,
    f"""
    INSERT INTO {{}}ducklake_metadata (key, value, scope, scope_id)
    SELECT '{KEY}', wanted.value, 'table', t.table_id {ASKED}
    """,
)


def set_options(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """Keep the cursor in the catalog and the data in files, and spare each apply what it would look for in vain.

    A catalog is told itself, Postgres in two round trips instead of forty. Its attached lake does not see that, and has
    to ``reload_options`` before it writes.
    """
    if lake.lake.sqlite_file is not None:
        with contextlib.suppress(duckdb.Error):
            _write_limits_to_a_file(con, lake, target)
        return
    with contextlib.suppress(psycopg.Error), lake.connections.use(lake.lake.conninfo) as catalog:
        tables = _write_limits(catalog, lake, target)
        _make_tables_of_inlined_deletes(catalog, lake, tables)  # a role that may not create tables has the limits


def reload_options(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, *, was_open: bool) -> None:
    """Read the options of the item's generation again, if a lake that ``was_open`` may have been opened before them.

    Otherwise it would keep rows in the catalog, and later the cursor in files, after another worker created the tables.
    """
    if has_options(lake, target):
        return
    if was_open:
        _set_limits(con, lake, target)
    lake.settled.add(_life(target))


def has_options(lake: OpenLake, target: Target) -> bool:
    return _life(target) in lake.settled


def _set_limits(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    for (schema, table), rows in ((_cursor(target.destination), CURSOR_INLINED_ROWS), (_data(target.destination), 0)):
        with lake.loading, contextlib.suppress(duckdb.Error):
            con.execute(
                f"CALL {ident(lake.alias)}.set_option('{KEY}', ?, schema => ?, table_name => ?)",
                [rows, schema, table],
            ).fetchall()


def _write_limits(catalog: psycopg.Connection[Any], lake: OpenLake, target: Target) -> list[int]:
    """What ``set_option`` writes; the ids of both tables."""
    rows = ask(catalog, Question(WRITE_LIMITS, {"": f"{ident(lake.lake.schema)}."}, _limits(target)))
    return [int(row["table_id"]) for row in rows]


def _write_limits_to_a_file(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """The same through the instance, so by DuckDB's own SQLite library (H11)."""
    names = {"": f"{path(metadata_of(lake.alias), 'main')}."}
    for text in WRITE_LIMITS_TO_A_FILE:
        tell(con, Question(text, names, _limits(target)))


def _limits(target: Target) -> dict[str, str]:
    (cursor_schema, cursor), (schema, table) = tables_of(target.destination)
    return {
        "cursor_schema": cursor_schema,
        "cursor": cursor,
        "cursor_rows": str(CURSOR_INLINED_ROWS),
        "schema": schema,
        "table": table,
        "rows": "0",
    }


def _life(target: Target) -> tuple[str, int]:
    return target.destination.key, target.item.generation


def tables_of(destination: Destination) -> tuple[tuple[str, str], tuple[str, str]]:
    """(schema, table) of the cursor and of the data."""
    return _cursor(destination), _data(destination)


def _cursor(destination: Destination) -> tuple[str, str]:
    return SCHEMA, cursor_name(destination.pipeline, destination.destination)


def _data(destination: Destination) -> tuple[str, str]:
    return destination.schema_name, destination.table


def _make_tables_of_inlined_deletes(catalog: psycopg.Connection[Any], lake: OpenLake, tables: Iterable[int]) -> None:
    """Make, empty, what DuckLake makes at the first delete that it inlines.

    Every transaction looks for it, and a missing table is looked for again each time: two joins of Postgres's own
    catalog for each table, a quarter of an apply.
    """
    schema = ident(lake.lake.schema)
    for table_id in tables:
        made = (
            f"CREATE TABLE IF NOT EXISTS {schema}.ducklake_inlined_delete_{table_id:d}"
            " (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)"
        )
        catalog.execute(made.encode())
