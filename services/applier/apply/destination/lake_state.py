"""What a destination's lake holds before a transaction: its cursor, its rows, and whether they speak of this source."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import duckdb

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor
from services.applier.apply.destination import table_schema
from services.applier.model.task import Target
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.catalog.looks import TableLook
from shared.lake.catalog.reader import TableInfo
from shared.lake.catalog.stamps import stamped_for
from shared.lake.connection.engine import release
from shared.lake.cursor import SCHEMA, cursor_name, moved
from shared.lake.sql import path
from shared.lake.table import require_table

SHOWN = 200
"""Characters of a cursor's text that a message holds."""

TimeOf = Callable[[int], datetime | None]
"""When a snapshot of the source was committed; None if it is gone or was not looked up."""


def held_rows(lake: OpenLake, destination: Destination) -> int | None:
    """Rows in the destination's table, None where there is none; of a damaged one, what metadata says.

    Asked on a cursor of its own, outside the transaction, which an error would end.
    """
    if not lake.catalog.has_table(destination.schema_name, destination.table):
        return None
    con, table = lake.cursor(), table_schema.table_path(lake.alias, destination)
    try:
        lake.begin(con)
        require_table(con, table)
        return int(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
    except duckdb.IOException:
        return lake.catalog.live_rows(destination.schema_name, destination.table)
    finally:
        release(con)


def table_look(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> tuple[int, TableLook]:
    """The snapshot that the transaction has pinned, and how the destination's table is laid out in it, and whether its
    owner has altered it."""
    pinned = int(con.execute(f"SELECT id FROM {path(lake.alias)}.current_snapshot()").fetchall()[0][0])
    table = destination.schema_name, destination.table
    stamped = stamped_for(destination.pipeline, destination.destination)
    return pinned, lake.layouts.at(pinned, table, lambda: lake.catalog.look(*table, pinned, stamped))


def stored_cursor(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> Cursor | None:
    """The stored cursor; None where its table is not there."""
    destination = target.destination
    if not lake.catalog.has_table(SCHEMA, cursor_name(destination.pipeline, destination.destination)):
        return None
    return fence.read_cursor(con, lake.alias, destination, spelled=target.is_spelled)


def require_same(cursor: Cursor, target: Target, source: TableInfo | None, time_of: TimeOf) -> None:
    """A cursor speaks of one source table, in one history, and one routing value. Raises where they are not the
    item's."""
    if source is not None and cursor.table_uuid != source.table_uuid:
        raise DestinationError(
            "source_recreated",
            f"the source table was dropped and created again: it was {cursor.table_uuid[:SHOWN]},"
            f" now it is {source.table_uuid}",
            "reseed the destination, or set routing.on_gap: reseed",
        )
    if source is not None and (wrong := moved(cursor.source_lake, cursor.position, time_of(cursor.position))):
        raise wrong
    if cursor.routing_value != target.destination.routing_value:
        raise DestinationError(
            "routing_value_changed",
            f"the destination holds the rows of {cursor.routing_value[:SHOWN]!r}, not of"
            f" {target.destination.routing_value[:SHOWN]!r}",
            "reseed the destination, or give it its old routing_value back",
        )


def dropped_generation_in(lake: OpenLake, destination: Destination, cursor: Cursor | None) -> int:
    return 0 if cursor is not None else fence.dropped_generation_in(lake.catalog, destination)
