"""A lake's metadata by plain SQL on its catalog: cheap, read-only, and never DuckLake's ``snapshots()``.

``snapshots()`` parses every snapshot of the lake (seconds on a long history); these queries touch the few
rows that they need, in a millisecond, on SQLite and on Postgres alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.contracts.errors import DestinationError
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.lake.catalog.arrangement import PARTITIONS, SORT_KEYS, Arrangement
from shared.lake.catalog.comments import COMMENTED, CatalogComments
from shared.lake.catalog.looks import CatalogLooks
from shared.lake.catalog.stamps import CommitStamps
from shared.lake.catalog.table_names import TableName, TableNames, name_at
from shared.lake.catalog.tables import CurrentTables
from shared.lake.columns.history import ColumnVersion, Field, fields_at, terms_of
from shared.lake.columns.identity import identified, own_names
from shared.lake.connection.statements import Row, catalog_time

MAINTENANCE = frozenset({"merge_adjacent", "rewrite_delete", "inline_flush"})
"""Marks of commits that move rows between files and change none."""

APPENDING = frozenset({"inserted_into_table", "inlined_insert", "merge_adjacent", "inline_flush"})


HEAD_ON_POSTGRES = (
    "SELECT snapshot_id, snapshot_time, now() AS catalog_now FROM {}ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
)

HEAD_ON_SQLITE = (
    "SELECT snapshot_id, snapshot_time, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now') AS catalog_now"
    " FROM {}ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
)


@dataclass(frozen=True)
class Head:
    """The newest snapshot; both times by the catalog's own clock."""

    snapshot: int
    time: datetime
    catalog_now: datetime


@dataclass(frozen=True)
class Column:
    """A column as DuckDB declares it; ``default`` is what rows older than the column show, None for NULL, and a
    ``not_null`` one allows none."""

    name: str
    type: str
    default: str | None = None
    not_null: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class TableInfo:
    """A table at one snapshot. ``table_uuid`` tells a dropped and re-created table from its predecessor."""

    schema: str
    name: str
    table_id: int
    table_uuid: str
    lake_uuid: str
    begin_snapshot: int
    columns: tuple[Column, ...]
    versions: tuple[ColumnVersion, ...] = ()
    """Every version of every column that the table ever had."""
    at: datetime | None = None
    """When the snapshot was committed; None where it is no longer retained."""
    snapshot: int = 0
    commented: int = NOT_SEEDED
    """The newest snapshot up to then that changed a comment of the table or of a column."""
    names: tuple[TableName, ...] = ()
    """Every name that the table ever had."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns by their field ids."""
        return fields_at(self.versions, self.snapshot)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def as_of(self, snapshot: int) -> TableInfo:
        """The table with the columns that it had at an older snapshot, retained or not."""
        return replace(self, columns=tuple(map(_column, fields_at(self.versions, snapshot))), snapshot=snapshot)

    def called(self, snapshot: int) -> tuple[str, str]:
        """Schema and name at another snapshot; the present ones where it was not there."""
        name = name_at(self.names, snapshot)
        return (self.schema, self.name) if name is None else (name.schema, name.table)

    def identified(self, name: str) -> Column | None:
        """The column that a configured name means: the one of that name, or the column that once had it."""
        return self.column(name) or self.identified_at(name, self.snapshot)

    def identified_at(self, name: str, snapshot: int) -> Column | None:
        """The same as it was at an older snapshot."""
        field = identified(self.versions, name, snapshot)
        return None if field is None else _column(field)

    def own_names(self, name: str) -> frozenset[str]:
        """The names, in lower case, that mean the same column as a configured name, at all snapshots."""
        return own_names(self.versions, name, self.snapshot)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Touch:
    """A snapshot that names the table, and what it says it did to it."""

    snapshot: int
    time: datetime
    marks: frozenset[str]

    @property
    def is_maintenance(self) -> bool:
        return bool(self.marks) and self.marks <= MAINTENANCE


class CatalogReader(CurrentTables, CommitStamps, CatalogComments, TableNames, CatalogLooks):
    """Reads one lake's metadata, at any snapshot that its catalog still knows."""

    def head(self) -> Head:
        row = self._one(HEAD_ON_POSTGRES if self._lake.sqlite_file is None else HEAD_ON_SQLITE)
        return Head(int(row["snapshot_id"]), catalog_time(row["snapshot_time"]), catalog_time(row["catalog_now"]))

    def oldest(self) -> int:
        """The oldest retained snapshot."""
        return int(self._one("SELECT min(snapshot_id) AS oldest FROM {}ducklake_snapshot")["oldest"])

    def retained(self, since: int, seen: int) -> tuple[int, int | None, datetime | None]:
        """The oldest retained snapshot, the oldest not before ``since``, and when ``seen`` was committed: each None
        where there is none."""
        row = self._one(
            "SELECT (SELECT min(snapshot_id) FROM {}ducklake_snapshot) AS oldest,"
            " (SELECT min(snapshot_id) FROM {}ducklake_snapshot WHERE snapshot_id >= :since) AS first,"
            " (SELECT snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id = :seen) AS at",
            since=since,
            seen=seen,
        )
        first, at = row["first"], row["at"]
        return int(row["oldest"]), None if first is None else int(first), None if at is None else catalog_time(at)

    def oldest_since(self, snapshot: int) -> int | None:
        """The oldest retained snapshot that is not before ``snapshot``."""
        sql = "SELECT min(snapshot_id) AS oldest FROM {}ducklake_snapshot WHERE snapshot_id >= :snapshot"
        oldest = self._one(sql, snapshot=snapshot)["oldest"]
        return None if oldest is None else int(oldest)

    def exists(self, snapshot: int) -> bool:
        return self.time_of(snapshot) is not None

    def time_of(self, snapshot: int) -> datetime | None:
        return self.times_of([snapshot]).get(snapshot)

    def times_of(self, snapshots: Iterable[int]) -> dict[int, datetime]:
        """When each of those snapshots was committed that are still retained, by the catalog's own clock."""
        wanted = {f"s{number}": snapshot for number, snapshot in enumerate({*snapshots})}
        places = ", ".join(f":s{number:d}" for number in range(len(wanted))) or "NULL"
        sql = f"SELECT snapshot_id, snapshot_time FROM {{}}ducklake_snapshot WHERE snapshot_id IN ({places})"
        rows = self._all(sql, **wanted)
        return {int(row["snapshot_id"]): catalog_time(row["snapshot_time"]) for row in rows}

    def contiguous(self, snapshots: Range) -> bool:
        """Whether every snapshot of the range is still retained."""
        sql = "SELECT count(*) AS n FROM {}ducklake_snapshot WHERE snapshot_id > :after AND snapshot_id <= :through"
        return (
            int(self._one(sql, after=snapshots.after, through=snapshots.through)["n"])
            == snapshots.through - snapshots.after
        )

    def is_whole(self) -> bool:
        """Whether every snapshot that the lake ever had is still retained, the first, 0, included."""
        found = self._one("SELECT count(*) AS n, max(snapshot_id) AS newest FROM {}ducklake_snapshot")
        return int(found["n"]) == int(found["newest"]) + 1

    def table(self, schema: str, table: str, at: int) -> TableInfo | None:
        """The table as it was at snapshot ``at``; None where there is none. Names compare as DuckDB compares them."""
        rows = self._all(
            "SELECT s.schema_name, t.table_name, t.table_id, t.table_uuid, t.begin_snapshot,"
            " (SELECT schema_uuid FROM {}ducklake_schema ORDER BY schema_id LIMIT 1) AS lake_uuid,"
            " (SELECT snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id = :at) AS committed,"
            f" ({COMMENTED}) AS commented"
            " FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.begin_snapshot <= :at AND (t.end_snapshot IS NULL OR t.end_snapshot > :at)"
            " AND s.begin_snapshot <= :at AND (s.end_snapshot IS NULL OR s.end_snapshot > :at)",
            schema=schema,
            table=table,
            at=at,
        )
        if not rows:
            return None
        row = rows[0]
        versions, names = self._column_versions(int(row["table_id"])), self.names_of(int(row["table_id"]))
        return TableInfo(
            schema=row["schema_name"],
            name=row["table_name"],
            table_id=int(row["table_id"]),
            table_uuid=str(row["table_uuid"]),
            lake_uuid=str(row["lake_uuid"]),
            begin_snapshot=names[0].begin,
            names=names,
            columns=tuple(map(_column, fields_at(versions, at))),
            versions=versions,
            at=None if row["committed"] is None else catalog_time(row["committed"]),
            snapshot=at,
            commented=NOT_SEEDED if row["commented"] is None else int(row["commented"]),
        )

    def source_table(self, schema: str, table: str, at: int) -> TableInfo | None:
        """The same of a table that may have another name at that snapshot, if no table has this one. ``schema`` and
        ``name`` of what is found are its own then."""
        found = self.table(schema, table, at)
        name = self.called_otherwise(schema, table, at) if found is None else None
        return found if name is None else self.table(name.schema, name.table, at)

    def _column_versions(self, table_id: int) -> tuple[ColumnVersion, ...]:
        rows = self._all(
            "SELECT column_id, parent_column, column_name, column_type, initial_default, begin_snapshot, end_snapshot,"
            " nulls_allowed, default_value, default_value_type"
            " FROM {}ducklake_column WHERE table_id = :table ORDER BY column_order",
            table=table_id,
        )
        return tuple(map(_version, rows))

    def touching(self, table_id: int, snapshots: Range) -> tuple[Touch, ...]:
        """The snapshots of the range that name the table, oldest first. Other tables' commits cost nothing."""
        rows = self._all(
            "SELECT c.snapshot_id, s.snapshot_time, c.changes_made FROM {}ducklake_snapshot_changes c"
            " JOIN {}ducklake_snapshot s ON s.snapshot_id = c.snapshot_id"
            " WHERE c.snapshot_id > :after AND c.snapshot_id <= :through AND c.changes_made LIKE :mark"
            " ORDER BY c.snapshot_id",
            after=snapshots.after,
            through=snapshots.through,
            mark=f"%:{table_id}%",
        )
        touches = (
            Touch(int(r["snapshot_id"]), catalog_time(r["snapshot_time"]), marks(r["changes_made"], table_id))
            for r in rows
        )
        return tuple(touch for touch in touches if touch.marks)

    def only_appended(self, table_id: int, snapshots: Range) -> bool:
        """Whether metadata proves that the range did nothing but insert rows, so its insertions are exact.

        The marks alone do not prove it: they were wrong in 34 of 1049 ranges that were tried. Expiry deletes marks, so
        a range with a hole proves nothing.
        """
        if snapshots.is_empty:
            return True
        touched = frozenset().union(*(touch.marks for touch in self.touching(table_id, snapshots)))
        return touched <= APPENDING and self.contiguous(snapshots) and not self._ended_files(table_id, snapshots)

    def _ended_files(self, table_id: int, snapshots: Range) -> bool:
        row = self._one(
            "SELECT (SELECT count(*) FROM {}ducklake_delete_file WHERE table_id = :table"
            "  AND begin_snapshot > :after AND begin_snapshot <= :through)"
            " + (SELECT count(*) FROM {}ducklake_data_file WHERE table_id = :table"
            "  AND end_snapshot > :after AND end_snapshot <= :through) AS n",
            table=table_id,
            after=snapshots.after,
            through=snapshots.through,
        )
        return int(row["n"]) > 0

    def taken_back(self, table_id: int, snapshots: Range) -> frozenset[int]:
        """The snapshots of the range that deleted rows which they had inserted themselves: their marks don't tell.

        A data file and its delete file that begin at once mean that, unless a flush wrote the file (it has a
        ``partial_max``), which dates both back.
        """
        rows = self._all(
            "SELECT DISTINCT d.begin_snapshot FROM {}ducklake_delete_file d JOIN {}ducklake_data_file f"
            " ON f.data_file_id = d.data_file_id AND f.begin_snapshot = d.begin_snapshot"
            " WHERE d.table_id = :table AND d.begin_snapshot > :after AND d.begin_snapshot <= :through"
            " AND f.partial_max IS NULL",
            table=table_id,
            after=snapshots.after,
            through=snapshots.through,
        )
        return frozenset(int(row["begin_snapshot"]) for row in rows)

    def require_shown_right(self, table_id: int, at: int) -> None:
        """Raises ``history_damaged`` where DuckLake shows an older snapshot of the table wrong (H13).

        A file with two delete files at once is shown twice: so the flush leaves it of a file that was rewritten before.
        """
        row = self._one(
            "SELECT count(*) AS n FROM (SELECT d.data_file_id FROM {}ducklake_delete_file d"
            " JOIN {}ducklake_data_file f ON f.data_file_id = d.data_file_id"
            " WHERE d.table_id = :table AND d.begin_snapshot <= :at"
            " AND (d.end_snapshot IS NULL OR d.end_snapshot > :at)"
            " AND f.begin_snapshot <= :at AND (f.end_snapshot IS NULL OR f.end_snapshot > :at)"
            " GROUP BY d.data_file_id HAVING count(*) > 1) AS doubled",
            table=table_id,
            at=at,
        )
        if int(row["n"]):
            raise DestinationError(
                "history_damaged",
                f"the source's snapshot {at} is shown with rows twice since its files were rewritten and flushed (H13)",
                "begin at another snapshot: seed_mode: scan, a reseed, or a rewind to where it is right",
            )

    def appended_rows(self, table_id: int, snapshots: Range) -> tuple[tuple[int, int], ...]:
        """Rows by the snapshot that added them, from file metadata: an estimate for cutting, not a count."""
        rows = self._all(
            "SELECT begin_snapshot, sum(record_count) AS rows_added FROM {}ducklake_data_file WHERE table_id = :table"
            " AND begin_snapshot > :after AND begin_snapshot <= :through"
            " GROUP BY begin_snapshot ORDER BY begin_snapshot",
            table=table_id,
            after=snapshots.after,
            through=snapshots.through,
        )
        return tuple((int(row["begin_snapshot"]), int(row["rows_added"])) for row in rows)

    def dropped_at(self, schema: str, table: str) -> tuple[int, ...]:
        """The snapshots that took a table of that name away, by DROP or by a new name."""
        rows = self._all(
            "SELECT t.end_snapshot FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.end_snapshot IS NOT NULL",
            schema=schema,
            table=table,
        )
        return tuple(int(row["end_snapshot"]) for row in rows)

    def arrangement(self, schema: str, table: str, at: int) -> Arrangement:
        """How the table is partitioned and sorted in snapshot ``at``."""
        parts = self._all(PARTITIONS, schema=schema, table=table, at=at)
        keys = self._all(SORT_KEYS, schema=schema, table=table, at=at)
        return Arrangement(
            tuple((str(row["transform"]), str(row["column_name"])) for row in parts),
            tuple((str(row["expression"]), str(row["sort_direction"]), str(row["null_order"])) for row in keys),
        )


def marks(changes_made: str, table_id: int) -> frozenset[str]:
    """What a snapshot's ``changes_made`` says of one table. Quoted names may hold anything, so they go first."""
    bare = re.sub(r'"(?:[^"]|"")*"', "", changes_made)
    return frozenset(re.findall(rf"(?:^|,)([a-z_]+):{table_id}(?=,|$)", bare))


def _version(row: Row) -> ColumnVersion:
    parent, end = row["parent_column"], row["end_snapshot"]
    return ColumnVersion(
        int(row["column_id"]),
        None if parent is None else int(parent),
        row["column_name"],
        row["column_type"],
        row["initial_default"],
        int(row["begin_snapshot"]),
        None if end is None else int(end),
        terms_of(row["nulls_allowed"], row["default_value"], row["default_value_type"]),
    )


def _column(field: Field) -> Column:
    return Column(field.name, field.declared, field.default)
