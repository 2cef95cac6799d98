"""Keeps a destination's table readable: many applies leave many small files, and rows that lie dead in large ones.

No row changes, so nothing moves and nothing is stamped: DuckLake lets a transaction either change rows or compact.
Files that were merged stay for whoever still reads them, until the lake's owner expires snapshots and cleans up.
"""

from __future__ import annotations

import duckdb

from services.applier.task import Target
from shared.lake.engine import release
from shared.lake.pool import OpenLake
from shared.lake.sql import literal

SMALL_BYTES = 16_000_000
"""Files up to this size are merged with their neighbours; larger ones stay, lest they be written again and again."""

DEAD_SHARE = 0.04
"""A file that has lost more of its rows is rewritten without them: one row in twenty-five, so that the file of a small
apply, which can't be merged while a row of it is dead, does not stay for ever."""


def tidy(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """Write dead rows out of files, then merge small ones. Raises ``duckdb.Error``; what is done by then stays done.

    First of all inlined rows go to a file: DuckLake can't rewrite beside them (DUCKLAKE §11), and a table has some
    where its seed died before it was settled. Where there are none nothing is flushed, which could drop tables that
    other workers remember (H12).
    """
    alias, schema, table = (
        literal(name) for name in (lake.alias, target.destination.schema_name, target.destination.table)
    )
    con = con.cursor()
    try:
        if lake.catalog.has_inlined_rows(target.destination.schema_name, target.destination.table):
            con.execute(
                f"CALL ducklake_flush_inlined_data({alias}, schema_name => {schema}, table_name => {table})"
            ).fetchall()
        con.execute(
            f"CALL ducklake_rewrite_data_files({alias}, {table}, schema => {schema}, delete_threshold => {DEAD_SHARE})"
        ).fetchall()
        con.execute(
            f"CALL ducklake_merge_adjacent_files({alias}, {table}, schema => {schema}, max_file_size => {SMALL_BYTES})"
        ).fetchall()
    finally:
        release(con)
