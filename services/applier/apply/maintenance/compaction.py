"""Keeps a destination's table readable: many applies leave many small files, and rows that lie dead in large ones.

No row changes. What goes from the catalog to files, and rows that move to a new file, are stamped, since their
snapshots are marked as if a user had deleted rows; merging needs no stamp.
Dead rows are left behind by a plain delete and insert of the living: DuckLake's own rewrite narrows the statistics of
the table to what is in it now, and every reader holds the past against them (H1). Ours is not the only one.
Replaced files stay for open readers, until snapshots are expired and files are cleaned up (``fenced_expiry``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial

import duckdb

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.in_doubt import committed_snapshot
from services.applier.apply.destination.lakes import DestinationLakes
from services.applier.apply.destination.table_schema import columns_of, table_path
from services.applier.apply.maintenance import catalog_rows
from services.applier.model.task import Target
from shared.config.substituted_words import SUBSTITUTED_WORD, refusal
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.connection.engine import release
from shared.lake.sql import literal

SMALL_BYTES = 16_000_000
"""Files up to this size are merged with their neighbours; larger ones stay, lest they be written again and again."""

DEAD_SHARE = 0.04
"""A file that has lost more of its rows is rewritten without them: one row in twenty-five, so that the file of a small
apply, which can't be merged while a row of it is dead, does not stay."""

Work = Callable[[duckdb.DuckDBPyConnection], None]
"""What is done in a transaction that is open on this connection."""


def maintain(lakes: DestinationLakes, lake: OpenLake, target: Target, deadline_s: float) -> None:
    """Write dead rows out of files, merge small ones, and forget old positions; what is done by then stays done.

    Inlined rows go to files first, also those of another writer: a flush that comes after shows deleted rows
    again in the snapshots before (H13). Raises ``duckdb.Error``, and ``deadline_exceeded`` where moving rows took
    longer than a transaction may (H6).
    """
    destination = target.destination
    con = lake.cursor()
    try:
        catalog_rows.forget_bounds(con, lake, destination)
        _flush(lakes, lake, target)
        worn = _worn_files(con, lake, destination)
        if worn and not _hides_file_names(con, table_path(lake.alias, destination)):
            _commit(lakes, lake, target, partial(_leave_dead_rows, lake.alias, target, worn, deadline_s))
            _flush(lakes, lake, target)  # where inlining is allowed, few rows were inlined by this
        lake.load(con)
        con.execute(
            "CALL ducklake_merge_adjacent_files(?, ?, schema => ?, max_file_size => ?)",
            [lake.alias, destination.table, destination.schema_name, SMALL_BYTES],
        ).fetchall()
        catalog_rows.forget_positions(con, lake, destination)
    finally:
        release(con)


def _leave_dead_rows(
    alias: str, target: Target, worn: list[str], deadline_s: float, con: duckdb.DuckDBPyConnection
) -> None:
    """Move the living rows of worn files to new ones."""
    table = table_path(alias, target.destination)
    began = time.monotonic()
    mine = "filename IN (SELECT unnest(?::VARCHAR[]))"
    inserted = con.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {mine}", [worn]).fetchall()
    deleted = con.execute(f"DELETE FROM {table} WHERE {mine}", [worn]).fetchall()
    if inserted != deleted:
        raise duckdb.TransactionException(f"{deleted} rows of worn files were deleted, and {inserted} are their copies")
    if time.monotonic() - began > deadline_s:
        raise DestinationError(
            "deadline_exceeded",
            f"upkeep of {target.destination.key} took longer than {deadline_s:g} s and was rolled back (H6)",
            "raise applier.deadline_seconds if the table is to be kept without dead rows",
        )


def _worn_files(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> list[str]:
    """Paths of the table's files that have lost more than ``DEAD_SHARE`` of their rows."""
    names = lake.catalog.worn_files(destination.schema_name, destination.table, DEAD_SHARE)
    if not names:
        return []
    listed = con.execute(
        "SELECT data_file FROM ducklake_list_files(?, ?, schema => ?)",
        [lake.alias, destination.table, destination.schema_name],
    ).fetchall()
    return sorted({file for (file,) in listed if file.rsplit("/", 1)[-1] in names})


def _hides_file_names(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Whether a column of the table's own stands for the name of the file that a row lies in."""
    return any(column.name.lower() == "filename" for column in columns_of(con, table) or ())


def _commit(lakes: DestinationLakes, lake: OpenLake, target: Target, work: Work) -> None:
    """Do ``work`` in a stamped transaction.

    On Postgres the first try loses no file (H7), but can't tell why its COMMIT failed; the next one can.
    """
    if lake.lake.sqlite_file is None:
        with lakes.for_one_commit(target) as own:
            if _is_done(own, lake, target, work):
                return
    _is_done(lake, lake, target, work)


def _is_done(own: OpenLake, lake: OpenLake, target: Target, work: Work) -> bool:
    """Do it in ``own``; whether it is committed, of which ``lake`` tells where COMMIT says nothing."""
    con, token, item = own.cursor(), uuid.uuid4().hex, target.item
    try:
        own.begin(con)
        fence.stamp(con, own.alias, fence.Stamp(item, "maintenance", item.through, item.through, token, 0, 0))
        work(con)
        keeps_files = own.keep_files(con)
        try:
            con.execute("COMMIT")
        except duckdb.Error:
            if not keeps_files:
                raise
            return committed_snapshot(lake, token) is not None
        return True
    finally:
        release(con)


def _flush(lakes: DestinationLakes, lake: OpenLake, target: Target) -> None:
    """Write inlined rows and deletes to files, where there are any.

    That drops the catalog's table for rows of the columns that were, which other workers remember (H12). So they are
    made to look again: a comment, even the present one, is a new version of the schema.
    """
    destination = target.destination
    names = (destination.schema_name, destination.table)
    tables = lake.catalog.inlined_into(*names)
    if len(tables) < 2 and not lake.catalog.has_inlined(*names):
        return

    def flush(con: duckdb.DuckDBPyConnection) -> None:
        if len(tables) > 1:
            con.execute(f"COMMENT ON TABLE {table_path(lake.alias, destination)} IS {_comment(con, lake, destination)}")
        con.execute(
            "CALL ducklake_flush_inlined_data(?, schema_name => ?, table_name => ?)", [lake.alias, *names]
        ).fetchall()

    _commit(lakes, lake, target, flush)


def _comment(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> str:
    """The table's own, as SQL. Raises ``value_not_carried`` where DuckLake would write another (H16)."""
    found = con.execute(
        "SELECT comment FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [lake.alias, destination.schema_name, destination.table],
    ).fetchall()
    comment = found[0][0] if found else None
    if comment is None:
        return "NULL"
    if word := SUBSTITUTED_WORD.search(comment):
        raise DestinationError("value_not_carried", f"the comment of the table {refusal(word)}", "change the comment")
    return literal(comment)
