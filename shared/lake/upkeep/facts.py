"""What a lake's catalog tells that upkeep decides by: stamps to keep, files that wait for clean-up, figures.

Times are compared here and never by the catalog: on SQLite they are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.contracts.upkeep import UpkeepFigures
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.statements import catalog_time
from shared.lake.cursor import SCHEMA

CURSORS = "cursor_"
"""What the names of cursor tables begin with."""

KEPT_ON_POSTGRES = (
    "SELECT max(snapshot_id) AS newest FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " GROUP BY substr(commit_extra_info, 1, strpos(commit_extra_info, :kind))"
    " UNION SELECT max(snapshot_id) FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info NOT LIKE :maintenance"
    " GROUP BY substr(commit_extra_info, 1, strpos(commit_extra_info, :kind))"
    " UNION SELECT snapshot_id FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info LIKE :drop"
)

KEPT_ON_SQLITE = (
    "SELECT max(snapshot_id) AS newest FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " GROUP BY substr(commit_extra_info, 1, instr(commit_extra_info, :kind))"
    " UNION SELECT max(snapshot_id) FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info NOT LIKE :maintenance"
    " GROUP BY substr(commit_extra_info, 1, instr(commit_extra_info, :kind))"
    " UNION SELECT snapshot_id FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info LIKE :drop"
)

WAITING = (
    "SELECT path, path_is_relative, schedule_start FROM {}ducklake_files_scheduled_for_deletion ORDER BY schedule_start"
)

FIGURES = (
    "SELECT (SELECT count(*) FROM {}ducklake_data_file WHERE end_snapshot IS NULL AND table_id = :table) AS files,"
    " (SELECT coalesce(sum(file_size_bytes), 0) FROM {}ducklake_data_file"
    "  WHERE end_snapshot IS NULL AND table_id = :table) AS bytes,"
    " (SELECT count(*) FROM {}ducklake_delete_file d JOIN {}ducklake_data_file f ON f.data_file_id = d.data_file_id"
    "  WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL AND d.table_id = :table) AS delete_files,"
    " (SELECT count(*) FROM {}ducklake_snapshot) AS snapshots,"
    " (SELECT count(*) FROM {}ducklake_files_scheduled_for_deletion) AS waiting_files"
)

SMALL = (
    "SELECT count(*) AS n FROM {}ducklake_data_file"
    " WHERE end_snapshot IS NULL AND table_id = :table AND file_size_bytes <= :small"
)

NEWEST_MOVE = (
    "SELECT max(snapshot_id) AS newest FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info LIKE :whose ESCAPE '!' AND commit_extra_info NOT LIKE :maintenance"
)

SINCE = "SELECT snapshot_id FROM {}ducklake_snapshot WHERE snapshot_id < :before ORDER BY snapshot_id LIMIT :most"

COUNT_BEFORE = "SELECT count(*) AS n FROM {}ducklake_snapshot WHERE snapshot_id < :before"

KIND, MAINTENANCE, DROP = '"kind"', '%"kind"_ "maintenance"%', '%"kind"_ "drop"%'


@dataclass(frozen=True)
class WaitingFile:
    """A file that waits for clean-up. ``name`` is the last part of its path; ``since``: by the catalog's clock."""

    name: str
    since: datetime


def kept_stamps(catalog: CatalogReader, *, on_sqlite: bool) -> frozenset[int]:
    """Snapshots whose stamps are never expired: of each destination in the lake the newest, the newest that moved its
    position, and those of drops, which fence earlier lives."""
    sql = KEPT_ON_SQLITE if on_sqlite else KEPT_ON_POSTGRES
    rows = catalog.select(sql, kind=KIND, maintenance=MAINTENANCE, drop=DROP)
    return frozenset(int(row["newest"]) for row in rows if row["newest"] is not None)


def newest_move(catalog: CatalogReader, pipeline: str, destination: str) -> int | None:
    """The newest retained snapshot in which a commit of Viaduck's moved the destination's position."""
    whose = f'"pipeline": "{pipeline}", "destination": "{destination}"'
    escaped = "".join(f"!{each}" if each in "!%_" else each for each in whose)
    found = catalog.select(NEWEST_MOVE, whose=f"%{escaped}%", maintenance=MAINTENANCE)[0]["newest"]
    return None if found is None else int(found)


def oldest_before(catalog: CatalogReader, before: int, most: int) -> list[int]:
    """Up to ``most`` retained snapshots older than ``before``, the oldest first."""
    return [int(row["snapshot_id"]) for row in catalog.select(SINCE, before=before, most=most)]


def count_before(catalog: CatalogReader, before: int) -> int:
    return int(catalog.select(COUNT_BEFORE, before=before)[0]["n"])


def cursor_tables(catalog: CatalogReader) -> tuple[str, ...]:
    """Names of the cursor tables in the lake, of destinations that were removed too."""
    found = (table for schema, table in catalog.tables() if schema == SCHEMA and table.startswith(CURSORS))
    return tuple(sorted(found))


def waiting_files(catalog: CatalogReader) -> list[WaitingFile]:
    """Files that compaction and expiry let go, the oldest first."""
    rows = catalog.select(WAITING)
    found = [WaitingFile(name_of(str(row["path"])), catalog_time(row["schedule_start"])) for row in rows]
    return sorted(found, key=lambda each: each.since)


def figures(catalog: CatalogReader, schema: str, table: str) -> UpkeepFigures:
    row = catalog.select(FIGURES, table=catalog.table_id(schema, table) or 0)[0]
    return UpkeepFigures(**{name: int(row[name]) for name in UpkeepFigures.model_fields})


def small_files(catalog: CatalogReader, schema: str, table: str, small_bytes: int) -> int:
    """Live files of the table of up to ``small_bytes``."""
    rows = catalog.select(SMALL, table=catalog.table_id(schema, table) or 0, small=small_bytes)
    return int(rows[0]["n"])


def name_of(path: str) -> str:
    """The last part of a path; DuckLake's own names are unique in their lake."""
    return path.rsplit("/", 1)[-1]
