"""Keeps a destination's table readable: many applies leave many small files, and rows that lie dead in large ones.

No row changes, so nothing moves: DuckLake lets a transaction either change rows or compact. What goes from the catalog
to files is stamped, since its snapshot is marked as if somebody had deleted rows; a compaction needs no stamp.
Files that were merged stay for whoever still reads them, until the lake's owner expires snapshots and cleans up.
"""

from __future__ import annotations

import uuid

import duckdb

from services.applier import fence
from services.applier.shape import table_path
from services.applier.task import Target
from shared.lake.engine import release
from shared.lake.pool import OpenLake
from shared.lake.sql import literal
from shared.messages import Destination

SMALL_BYTES = 16_000_000
"""Files up to this size are merged with their neighbours; larger ones stay, lest they be written again and again."""

DEAD_SHARE = 0.04
"""A file that has lost more of its rows is rewritten without them: one row in twenty-five, so that the file of a small
apply, which can't be merged while a row of it is dead, does not stay for ever."""


def tidy(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """Write dead rows out of files, then merge small ones. Raises ``duckdb.Error``; what is done by then stays done.

    First of all what is inlined goes to files, be it by somebody else: DuckLake can't rewrite beside it (DUCKLAKE §11),
    and a flush that comes after shows deleted rows again in the snapshots before (§1.11).
    """
    alias, schema, table = lake.alias, target.destination.schema_name, target.destination.table
    con = con.cursor()
    try:
        _flush(con, lake, target)
        con.execute(
            "CALL ducklake_rewrite_data_files(?, ?, schema => ?, delete_threshold => ?)",
            [alias, table, schema, DEAD_SHARE],
        ).fetchall()
        con.execute(
            "CALL ducklake_merge_adjacent_files(?, ?, schema => ?, max_file_size => ?)",
            [alias, table, schema, SMALL_BYTES],
        ).fetchall()
    finally:
        release(con)


def _flush(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> None:
    """Write inlined rows and deletes to files; where there are none, no snapshot comes of it.

    That drops the catalog's table for rows of the columns that were, which other workers remember (H12). So they are
    made to look again: a comment, even the one that is there, is a new version of the schema.
    """
    destination, item = target.destination, target.item
    names = (destination.schema_name, destination.table)
    con.execute("BEGIN")
    fence.stamp(con, lake.alias, fence.Stamp(item, "maintenance", item.through, item.through, uuid.uuid4().hex, 0, 0))
    if len(lake.catalog.inlined_into(*names)) > 1:
        con.execute(f"COMMENT ON TABLE {table_path(lake.alias, destination)} IS {_comment(con, lake, destination)}")
    con.execute(
        "CALL ducklake_flush_inlined_data(?, schema_name => ?, table_name => ?)", [lake.alias, *names]
    ).fetchall()
    con.execute("COMMIT")


def _comment(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> str:
    """The table's own, as SQL."""
    found = con.execute(
        "SELECT comment FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [lake.alias, destination.schema_name, destination.table],
    ).fetchall()
    comment = found[0][0] if found else None
    return "NULL" if comment is None else literal(comment)
