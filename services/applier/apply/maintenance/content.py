"""What a table shows at a snapshot, as a count and two sums that no order of rows changes."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from services.applier.apply.destination.table_schema import table_path
from services.applier.model.task import Target
from shared.contracts.errors import DestinationError
from shared.contracts.ranges import Range
from shared.contracts.upkeep import UPKEEP_DAMAGED
from shared.lake.attached.pool import OpenLake
from shared.lake.table import require_table
from shared.lake.upkeep.facts import newest_move

ROW = "viaduck_row"


@dataclass(frozen=True)
class ContentDigest:
    """``digest``: exclusive or, and sum, of the rows' 64-bit hashes."""

    rows: int
    digest: tuple[int, int]


@dataclass(frozen=True)
class Shown:
    """What a destination's table showed before an upkeep, by snapshot. ``head`` was the lake's newest one."""

    head: int
    contents: dict[int, ContentDigest]


def shown(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target) -> Shown:
    """The table at the lake's head, and at the newest snapshot that moved the destination's position."""
    destination = target.destination
    head = lake.catalog.head().snapshot
    moved = newest_move(lake.catalog, destination.pipeline, destination.destination)
    asked = {head} if moved is None else {head, moved}
    return Shown(head, {each: content(con, lake, target, each) for each in asked})


def require_unchanged(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, before: Shown) -> None:
    """Raises ``upkeep_damaged`` where a snapshot that was looked at ``before`` shows other rows now, or the head
    does and no other program has changed the table meanwhile."""
    for snapshot, expected in before.contents.items():
        _require(target, expected, content(con, lake, target, snapshot), f"snapshot {snapshot}")
    head = lake.catalog.head().snapshot
    if head != before.head and not _changed_by_others(lake, target, Range(before.head, head)):
        _require(target, before.contents[before.head], content(con, lake, target, head), f"snapshot {head}, the head,")


def content(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, snapshot: int) -> ContentDigest:
    """Reads all rows. The table's name is held against the catalog in the transaction that reads."""
    table = table_path(lake.alias, target.destination)
    lake.begin(con)
    try:
        require_table(con, table)
        rows, both, total = con.execute(
            f"SELECT count(*), coalesce(bit_xor(hash({ROW})), 0), coalesce(sum(hash({ROW})::HUGEINT), 0)"
            f" FROM {table} {ROW} AT (VERSION => {snapshot:d})"
        ).fetchall()[0]
    finally:
        con.execute("ROLLBACK")
    return ContentDigest(int(rows), (int(both), int(total)))


def _changed_by_others(lake: OpenLake, target: Target, snapshots: Range) -> bool:
    """Whether a commit of the range is neither a compaction nor stamped as maintenance."""
    destination = target.destination
    table_id = lake.catalog.table_id(destination.schema_name, destination.table) or 0
    touches = lake.catalog.touching(table_id, snapshots)
    return any(not (each.is_maintenance or _is_ours(lake, each.snapshot)) for each in touches)


def _is_ours(lake: OpenLake, snapshot: int) -> bool:
    return '"kind": "maintenance"' in (lake.catalog.stamp_at(snapshot) or "")


def _require(target: Target, expected: ContentDigest, found: ContentDigest, where: str) -> None:
    if found == expected:
        return
    what = f"{expected.rows} rows before and {found.rows} after" if found.rows != expected.rows else "other values"
    raise DestinationError(
        UPKEEP_DAMAGED,
        f"upkeep changed what the table of {target.destination.key} shows at {where}: {what}",
        "no upkeep of the pipeline begins until you reseed or resume it; compare its rows with the source first"
        " (viaduck verify), and report this",
    )
