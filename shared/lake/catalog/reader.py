"""A lake's metadata by plain SQL on its catalog: cheap, read-only, and never DuckLake's ``snapshots()``.

``snapshots()`` parses every snapshot of the lake (seconds on a long history); these queries touch the few
rows that they need, in a millisecond, on SQLite and on Postgres alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.contracts.errors import DestinationError
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.lake.catalog.arrangement import PARTITIONS, SORT_KEYS, Arrangement
from shared.lake.catalog.comments import COMMENTED, CatalogComments
from shared.lake.catalog.looks import LAYOUT, CatalogLooks, layout_in
from shared.lake.catalog.stamps import CommitStamps
from shared.lake.catalog.table_names import CALLED, NAMES_OF_CALLED, TableName, TableNames, name_at, names_in
from shared.lake.catalog.tables import CurrentTables
from shared.lake.catalog.touches import TOUCHING, TOUCHING_CALLED, TableTouches, Touch, mark_of, touches_in
from shared.lake.columns.history import ColumnVersion, Field, fields_at, terms_of
from shared.lake.columns.identity import identified, own_names
from shared.lake.connection.query import Value
from shared.lake.connection.statements import Row, catalog_time
from shared.lake.pruning import FileLayout

HEAD_ON_POSTGRES = (
    "SELECT snapshot_id, snapshot_time, now() AS catalog_now FROM {}ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
)

HEAD_ON_SQLITE = (
    "SELECT snapshot_id, snapshot_time, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now') AS catalog_now"
    " FROM {}ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
)


TABLE = (
    "SELECT s.schema_name, t.table_name, t.table_id, t.table_uuid,"
    " (SELECT schema_uuid FROM {}ducklake_schema ORDER BY schema_id LIMIT 1) AS lake_uuid,"
    " (SELECT snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id = :at) AS committed,"
    f" ({COMMENTED}) AS commented{CALLED}"
)

VERSIONS = (
    "SELECT column_id, parent_column, column_name, column_type, initial_default, begin_snapshot, end_snapshot,"
    " nulls_allowed, default_value, default_value_type"
    f" FROM {{}}ducklake_column WHERE table_id IN (SELECT t.table_id{CALLED}) ORDER BY column_order"
)

RETAINED = (
    "SELECT (SELECT min(snapshot_id) FROM {}ducklake_snapshot) AS oldest,"
    " (SELECT min(snapshot_id) FROM {}ducklake_snapshot WHERE snapshot_id >= (SELECT min(n.begin_snapshot)"
    f" FROM {{}}ducklake_table n WHERE n.table_id IN (SELECT t.table_id{CALLED}))) AS first"
)

NEWEST = 2**63 - 1
"""No snapshot has a larger number."""


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
class TableView:
    """A table at a snapshot, and what else decides how its changes are read.

    ``oldest``: the oldest retained snapshot; ``first``: the oldest since the table is there, None where there is none;
    ``times``: of those of the asked snapshots that are retained; ``touches``: of the table, oldest first.
    """

    table: TableInfo
    layout: FileLayout
    oldest: int
    first: int | None
    times: Mapping[int, datetime]
    touches: tuple[Touch, ...]


@dataclass(frozen=True)
class SourceNews:
    """The head, and what has touched a table up to it, oldest first; ``times`` of the asked snapshots that are
    retained."""

    head: Head
    times: Mapping[int, datetime]
    touches: tuple[Touch, ...]


class CatalogReader(CurrentTables, CommitStamps, CatalogComments, TableNames, TableTouches, CatalogLooks):
    """Reads one lake's metadata, at any snapshot that its catalog still knows."""

    def head(self) -> Head:
        return _head(self._all(self._newest))

    @property
    def _newest(self) -> str:
        return HEAD_ON_POSTGRES if self._lake.sqlite_file is None else HEAD_ON_SQLITE

    def oldest(self) -> int:
        """The oldest retained snapshot."""
        return int(self._one("SELECT min(snapshot_id) AS oldest FROM {}ducklake_snapshot")["oldest"])

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
        wanted = _numbered(snapshots)
        return _times(self._all(_times_of(len(wanted)), **wanted))

    def is_whole(self) -> bool:
        """Whether every snapshot that the lake ever had is still retained, the first, 0, included."""
        found = self._one("SELECT count(*) AS n, max(snapshot_id) AS newest FROM {}ducklake_snapshot")
        return int(found["n"]) == int(found["newest"]) + 1

    def table(self, schema: str, table: str, at: int) -> TableInfo | None:
        """The table as it was at snapshot ``at``; None where there is none. Names compare as DuckDB compares them."""
        return _table(at, *self.asked_at_once((TABLE, VERSIONS, NAMES_OF_CALLED), schema=schema, table=table, at=at))

    def source_table(self, schema: str, table: str, at: int) -> TableInfo | None:
        """The same of a table that may have another name at that snapshot, if no table has this one. ``schema`` and
        ``name`` of what is found are its own then."""
        found = self.table(schema, table, at)
        name = self.called_otherwise(schema, table, at) if found is None else None
        return found if name is None else self.table(name.schema, name.table, at)

    def source_look(
        self, schema: str, table: str, at: int, snapshots: Iterable[int] = (), after: int = NEWEST
    ) -> TableView | None:
        """What ``source_table`` finds, and what else is asked of it, in one round trip; in three where it is called
        otherwise. ``snapshots``: those of which the times are wanted; ``after``: since when its touches are."""
        wanted = _numbered(snapshots)
        texts = (TABLE, VERSIONS, NAMES_OF_CALLED, LAYOUT, RETAINED, _times_of(len(wanted)), TOUCHING_CALLED)
        named: dict[str, Value] = {"schema": schema, "table": table, "at": at, "after": after, "through": at}
        *found, layout, retained, times, touches = self.asked_at_once(texts, **named, **wanted)
        seen = _table(at, *found)
        if seen is None:
            name = self.called_otherwise(schema, table, at)
            return None if name is None else self.source_look(name.schema, name.table, at, snapshots, after)
        return TableView(
            seen, layout_in(layout), *_retained(retained), _times(times), touches_in(touches, seen.table_id)
        )

    def retained(self, schema: str, table: str, at: int) -> tuple[int, int | None]:
        """The oldest retained snapshot, and the oldest with the table, of a look at ``at`` that was made before: an
        expiry makes no snapshot."""
        return _retained(self._all(RETAINED, schema=schema, table=table, at=at))

    def news(self, table_id: int, after: int, snapshots: Iterable[int] = ()) -> SourceNews:
        """What has touched a table after a snapshot, up to the head, and when ``snapshots`` were committed, in one
        round trip."""
        wanted = _numbered(snapshots)
        head, times, touches = self.asked_at_once(
            (self._newest, _times_of(len(wanted)), TOUCHING),
            after=after,
            through=NEWEST,
            mark=mark_of(table_id),
            **wanted,
        )
        seen = _head(head)
        found = (touch for touch in touches_in(touches, table_id) if touch.snapshot <= seen.snapshot)
        return SourceNews(seen, _times(times), tuple(found))

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


def _numbered(snapshots: Iterable[int]) -> dict[str, int]:
    return {f"s{number}": snapshot for number, snapshot in enumerate({*snapshots})}


def _times_of(count: int) -> str:
    """The query of the times of so many snapshots, ``_numbered``."""
    places = ", ".join(f":s{number:d}" for number in range(count)) or "NULL"
    return f"SELECT snapshot_id, snapshot_time FROM {{}}ducklake_snapshot WHERE snapshot_id IN ({places})"


def _times(rows: Sequence[Row]) -> dict[int, datetime]:
    return {int(row["snapshot_id"]): catalog_time(row["snapshot_time"]) for row in rows}


def _retained(rows: Sequence[Row]) -> tuple[int, int | None]:
    """By the row of ``RETAINED``."""
    oldest, first = rows[0]["oldest"], rows[0]["first"]
    return int(oldest), None if first is None else int(first)


def _head(rows: Sequence[Row]) -> Head:
    if not rows:
        raise LookupError("the catalog has no snapshot")
    row = rows[0]
    return Head(int(row["snapshot_id"]), catalog_time(row["snapshot_time"]), catalog_time(row["catalog_now"]))


def _table(at: int, found: Sequence[Row], columns: Sequence[Row], called: Sequence[Row]) -> TableInfo | None:
    """By the rows of ``TABLE``, ``VERSIONS`` and ``NAMES_OF_CALLED``."""
    if not found:
        return None
    row, versions, names = found[0], tuple(map(_version, columns)), names_in(called)
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
