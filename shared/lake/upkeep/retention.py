"""How far back a lake's snapshots reach, and what it costs to keep them, by plain SQL on its catalog.

Times are compared here and never by the catalog: on SQLite they are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.statements import Row, catalog_time
from shared.lake.upkeep.retained import LakeSnapshot, Retained

NEXT = (
    "SELECT snapshot_id, snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id >= :since"
    " ORDER BY snapshot_id LIMIT :most"
)

PREVIOUS = (
    "SELECT snapshot_id, snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id < :before"
    " ORDER BY snapshot_id DESC LIMIT 1 OFFSET :skipped"
)

UUID = "SELECT schema_uuid FROM {}ducklake_schema ORDER BY schema_id LIMIT 1"

HIDDEN = (
    "SELECT count(*) AS files, coalesce(sum(file_size_bytes), 0) AS bytes FROM ("
    "SELECT file_size_bytes, end_snapshot FROM {}ducklake_data_file"
    " UNION ALL SELECT file_size_bytes, end_snapshot FROM {}ducklake_delete_file) AS files"
    " WHERE end_snapshot IS NOT NULL AND end_snapshot <= :oldest"
)


@dataclass(frozen=True)
class Freed:
    """Files that no snapshot shows any more. ``bytes``: as the catalog has their sizes."""

    files: int
    bytes: int


def retained(catalog: CatalogReader) -> Retained:
    """Raises what every question to a catalog does, and ``LookupError`` where it holds no lake."""
    head = catalog.head()
    oldest = snapshots_since(catalog, 0, 1)[0]
    uuid = str(catalog.select(UUID)[0]["schema_uuid"])
    return Retained(uuid, oldest.id, oldest.at, head.snapshot, head.catalog_now)


def snapshots_since(catalog: CatalogReader, first: int, most: int) -> list[LakeSnapshot]:
    """Up to ``most`` retained snapshots from ``first`` on, the oldest first."""
    return [_snapshot(row) for row in catalog.select(NEXT, since=first, most=most)]


def newest_but(catalog: CatalogReader, kept: int, head: int) -> LakeSnapshot | None:
    """The oldest of the ``kept`` newest snapshots up to ``head``; None where there are fewer."""
    rows = catalog.select(PREVIOUS, before=head + 1, skipped=kept - 1)
    return _snapshot(rows[0]) if rows else None


def snapshot_at(catalog: CatalogReader, moment: datetime) -> LakeSnapshot | None:
    """The newest snapshot that was committed at ``moment`` or before; None where that is no longer retained.

    Snapshots are numbered in the order of their commits, so their times ascend, by a second or so.
    """
    low = snapshots_since(catalog, 0, 1)[0]
    if low.at > moment:
        return None
    beyond = catalog.head().snapshot + 1
    while (middle := (low.id + beyond + 1) // 2) < beyond:
        found = snapshots_since(catalog, middle, 1)
        if found and found[0].at <= moment and found[0].id < beyond:
            low = found[0]
        else:
            beyond = middle
    return low


def freed_from(catalog: CatalogReader, oldest: int) -> Freed:
    """What no snapshot from ``oldest`` on shows, and the files' own catalog still lists."""
    (row,) = catalog.select(HIDDEN, oldest=oldest)
    return Freed(int(row["files"]), int(row["bytes"]))


def _snapshot(row: Row) -> LakeSnapshot:
    return LakeSnapshot(int(row["snapshot_id"]), catalog_time(row["snapshot_time"]))
