"""A topic's destination goes back: rows of records at and beyond a position are taken out with the cursor's move."""

from __future__ import annotations

import duckdb

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor, Decision, decide
from services.applier.apply.cursor_answers import unknown
from services.applier.apply.destination import table_schema
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.destination.lake_state import dropped_generation_in, require_same, stored_cursor
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination, Outcome
from shared.contracts.positions import Vector
from shared.lake.attached.pool import OpenLake
from shared.lake.sql import ident
from shared.lake.table import require_table

PARTITION, OFFSET = "_kafka_partition", "_kafka_offset"
"""The metadata columns that name the record of a row."""

RESEED = "reseed the destination, which begins at source.start again"


def rewind(con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange, token: str) -> Applied:
    """Begin a generation at an earlier position of the same topic, in the transaction that is open.

    What is left is what the records before that position became. Raises ``CursorMoved`` where another life has begun,
    ``DestinationError`` where the rows don't tell which records they are of. TLA: ``TakeBackRecords``.
    """
    target, item, destination = change.target, change.target.item, change.target.destination
    seen = stored_cursor(con, lake, target)
    if decide(seen, item, dropped_generation_in(lake, destination, seen)) is not Decision.APPLY:
        raise fence.CursorMoved
    cursor = _passed(seen, change)
    fence.replace_cursor(con, lake.alias, change.move(0), cursor)
    begin, reached = Vector.parse(item.end.spelled), Vector.parse(cursor.source_position)
    deleted = _take_back(con, table_schema.table_path(lake.alias, destination), destination, begin, reached)
    fence.stamp(con, lake.alias, change.stamp(cursor.position, token, deleted, 0))
    return Applied(
        Outcome.APPLIED, change.through, change.through, deleted, rows_applied=0, position_at=change.through_at
    )


def _passed(seen: Cursor | None, change: DestinationChange) -> Cursor:
    """The cursor, if it has passed where the rewind is to begin, in the topic that is there. TLA: ``MayRewind``."""
    target = change.target
    key, end = target.destination.key, target.item.end
    if change.reading is None or change.reading.keys:
        said = f"{key} has key columns: a newer record has replaced rows that a rewind would need"
        raise DestinationError("not_allowed", said, RESEED)
    if seen is None:
        raise DestinationError("cursor_damaged", f"the cursor of {key} is gone, so nothing can be rewound", RESEED)
    require_same(seen, target, change.table, unknown)
    if not seen.reached.covers(end):
        said = f"{key} is at {seen.source_position or seen.position}, which is not beyond {end.spelled} everywhere"
        raise DestinationError("not_allowed", f"{said}: a rewind goes back", "rewind to an earlier position, or reseed")
    return seen


def _take_back(
    con: duckdb.DuckDBPyConnection, table: str, destination: Destination, begin: Vector, reached: Vector
) -> int:
    """Delete the rows of records from ``begin`` on; how many they were."""
    require_table(con, table)
    have = {column.name.lower() for column in table_schema.columns_of(con, table) or ()}
    if not {PARTITION, OFFSET} <= have:
        raise _untold(destination, f"has no columns {PARTITION} and {OFFSET}")
    missing = f"SELECT count(*) FROM {table} WHERE {ident(PARTITION)} IS NULL OR {ident(OFFSET)} IS NULL"
    untold = int(con.execute(missing).fetchall()[0][0])
    if untold:
        raise _untold(destination, f"has {untold} rows without them")
    places = begin.by_partition
    partitions = [each for each, _ in reached.offsets]
    ends = "(SELECT unnest(CAST(? AS INTEGER[])) AS p, unnest(CAST(? AS BIGINT[])) AS o) AS x"
    sql = f"DELETE FROM {table} AS t USING {ends} WHERE t.{ident(PARTITION)} = x.p AND t.{ident(OFFSET)} >= x.o"
    return int(con.execute(sql, [partitions, [places.get(each, 0) for each in partitions]]).fetchall()[0][0])


def _untold(destination: Destination, how: str) -> DestinationError:
    said = f"the table {destination.table} of {destination.key} {how}, by which a rewind knows the rows to take back"
    return DestinationError("not_allowed", said, RESEED)
