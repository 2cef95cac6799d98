"""Removes a destination's table and cursor in one stamped transaction: the end of its last generation.

A table is dropped only if a cursor belongs to it: without one it is another program's. A concurrent apply
either conflicts, because its table is gone, or commits first and is dropped with the rest.
"""

from __future__ import annotations

import contextlib
import uuid

import duckdb

from services.applier.apply.cursor import fence
from services.applier.apply.destination import table_schema
from services.applier.apply.destination.change import Applied
from services.applier.apply.destination.lake_state import held_rows
from services.applier.apply.destination.table_options import tables_of
from services.applier.apply.transaction import BUSY_TRIES, wait_for_rival
from services.applier.model.task import Target
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.connection.engine import release
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import LakeAbsent, classify

GONE = Applied(Outcome.ALREADY_APPLIED, NOT_SEEDED)


def drop(pool: LakePool, target: Target) -> Applied:
    """Drop what ``target`` holds, or say why not. Raises a ``ViaduckError`` when it can't be done.

    TLA: ``TakeDrop``.
    """
    for attempt in range(1, BUSY_TRIES + 1):
        try:
            with pool.use(target.lake, read_only=False) as lake:
                writing = lake.writing if lake.lake.sqlite_file is not None else contextlib.nullcontext()
                lake.inspect(*tables_of(target.destination))
                with writing:
                    return _try(lake.cursor(), pool, lake, target)
        except LakeAbsent:
            return GONE
        except ViaduckError as error:
            if error.type != "destination_busy" or attempt == BUSY_TRIES:
                raise
            wait_for_rival(attempt)
    raise AssertionError("unreachable")


def _try(con: duckdb.DuckDBPyConnection, pool: LakePool, lake: OpenLake, target: Target) -> Applied:
    destination, item = target.destination, target.item
    if not lake.catalog.has_table(SCHEMA, cursor_name(destination.pipeline, destination.destination)):
        return GONE
    try:
        lake.begin(con)
        cursor = fence.read_cursor(con, lake.alias, destination)
        if cursor is None:
            return GONE
        if cursor.generation > item.generation:
            return Applied(Outcome.FENCED, cursor.position, generation=cursor.generation)
        rows = _drop_table(con, lake, target)
        con.execute(f"DROP TABLE {fence.cursor_table(lake.alias, destination)}")
        at = max(cursor.position, 0)
        fence.stamp(
            con, lake.alias, fence.Stamp(item, ItemKind.DROP.value, cursor.position, at, uuid.uuid4().hex, rows, 0)
        )
        con.execute("COMMIT")
        return Applied(Outcome.APPLIED, NOT_SEEDED, deleted=rows)
    except duckdb.Error as error:
        # Also one during COMMIT: whether it went through, the next try sees.
        pool.evict(lake)
        raise classify(error, f"dropping {destination.key}") from None
    finally:
        with contextlib.suppress(duckdb.Error):  # ended already by COMMIT, or by the error
            con.execute("ROLLBACK")
        release(con)


def _drop_table(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> int:
    """Rows that went with it."""
    destination = target.destination
    rows = held_rows(lake, destination)
    if rows is None:
        return 0
    con.execute(f"DROP TABLE {table_schema.table_path(lake.alias, destination)}")
    return rows
