"""A lake's metadata by plain SQL on its catalog: cheap, read-only, and never DuckLake's ``snapshots()``.

``snapshots()`` parses every snapshot of the lake (seconds on a long history); these queries touch the few
rows that they need, in a millisecond, on SQLite and on Postgres alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb
import psycopg

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.contracts.ranges import Range
from shared.lake.catalog_query import Question, Value
from shared.lake.column_history import ColumnVersion, Field, fields_at
from shared.lake.engine import SQLITE, connect
from shared.lake.failure import classify
from shared.lake.postgres_connections import PostgresConnections
from shared.lake.pruning import Layout, layout_of
from shared.lake.sql import ident
from shared.lake.statements import AttachedSqlite, OwnSqlite, Postgres, Row, SharedPostgres, Statements

MAINTENANCE = frozenset({"merge_adjacent", "rewrite_delete", "inline_flush"})
"""Marks of commits that move rows between files and change none."""

LOOKED_BACK = 10_000
"""Snapshots in which a commit of a moment ago is looked for: a lake that many share may have millions."""

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
    """A column as DuckDB declares it; ``default`` is what rows older than the column show, None for NULL."""

    name: str
    type: str
    default: str | None = None


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

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def as_of(self, snapshot: int) -> TableInfo:
        """The table with the columns that it had at an older snapshot, retained or not."""
        return replace(self, columns=tuple(map(_column, fields_at(self.versions, snapshot))))

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


@dataclass(frozen=True)
class Stamped:
    """A commit of Viaduck's, with what it says of itself."""

    snapshot: int
    time: datetime
    message: str
    extra_info: str


@dataclass(frozen=True)
class Present:
    """What a catalog says now of what an attached lake remembers of it: its own tables of inlined rows, its newest
    snapshot, and when some snapshots were committed, of those that are still retained."""

    inlined: frozenset[str]
    head: int
    times: Mapping[int, datetime]


class CatalogReader:
    """Reads one lake's metadata. Every call is a statement or two of its own, so nothing stays open or locked.

    Raises a ``ViaduckError`` (``destination_unreachable``, ``access_denied``, …) when the catalog does not answer; the
    next call tries again on a fresh connection.
    """

    def __init__(self, lake: ResolvedLake, statements: Statements | None = None) -> None:
        self._lake = lake
        self._given = statements
        self._statements = statements
        self._prefix = f"{ident(lake.schema)}."

    @classmethod
    def attached(
        cls,
        lake: ResolvedLake,
        con: duckdb.DuckDBPyConnection,
        alias: str,
        connections: PostgresConnections | None = None,
    ) -> CatalogReader:
        """A reader of a lake that ``con`` has attached as ``alias``.

        It opens nothing of its own on SQLite, nor on Postgres where it is given ``connections`` to share.
        """
        if lake.sqlite_file is None:
            return cls(lake, None if connections is None else SharedPostgres(connections, lake.conninfo))
        return cls(lake, AttachedSqlite(con, f"__ducklake_metadata_{alias}"))

    def close(self) -> None:
        if self._statements is not None:
            self._statements.close()
        self._statements = self._given

    def is_there(self) -> bool:
        """Whether a Postgres database holds a lake. Cheaper than an ATTACH that finds none."""
        found = self._one("SELECT to_regclass(:name) IS NOT NULL AS there", name=f"{self._prefix}ducklake_snapshot")
        return bool(found["there"])

    def head(self) -> Head:
        row = self._one(HEAD_ON_POSTGRES if self._lake.sqlite_file is None else HEAD_ON_SQLITE)
        return Head(int(row["snapshot_id"]), _time(row["snapshot_time"]), _time(row["catalog_now"]))

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
        return int(row["oldest"]), None if first is None else int(first), None if at is None else _time(at)

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
        return {int(row["snapshot_id"]): _time(row["snapshot_time"]) for row in rows}

    def contiguous(self, range: Range) -> bool:
        """Whether every snapshot of the range is still retained."""
        sql = "SELECT count(*) AS n FROM {}ducklake_snapshot WHERE snapshot_id > :after AND snapshot_id <= :through"
        return int(self._one(sql, after=range.after, through=range.through)["n"]) == range.through - range.after

    def table(self, schema: str, table: str, at: int) -> TableInfo | None:
        """The table as it was at snapshot ``at``; None where there is none. Names compare as DuckDB compares them."""
        rows = self._all(
            "SELECT s.schema_name, t.table_name, t.table_id, t.table_uuid, t.begin_snapshot,"
            " (SELECT schema_uuid FROM {}ducklake_schema ORDER BY schema_id LIMIT 1) AS lake_uuid,"
            " (SELECT snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id = :at) AS committed"
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
        versions = self._column_versions(int(row["table_id"]))
        return TableInfo(
            schema=row["schema_name"],
            name=row["table_name"],
            table_id=int(row["table_id"]),
            table_uuid=str(row["table_uuid"]),
            lake_uuid=str(row["lake_uuid"]),
            begin_snapshot=self._born(int(row["table_id"])),
            columns=tuple(map(_column, fields_at(versions, at))),
            versions=versions,
            at=None if row["committed"] is None else _time(row["committed"]),
        )

    def _born(self, table_id: int) -> int:
        """The snapshot that created the table; a rename gives it a second row with a later one."""
        sql = "SELECT min(begin_snapshot) AS born FROM {}ducklake_table WHERE table_id = :table"
        return int(self._one(sql, table=table_id)["born"])

    def _column_versions(self, table_id: int) -> tuple[ColumnVersion, ...]:
        rows = self._all(
            "SELECT column_id, parent_column, column_name, column_type, initial_default, begin_snapshot, end_snapshot"
            " FROM {}ducklake_column WHERE table_id = :table ORDER BY column_order",
            table=table_id,
        )
        return tuple(map(_version, rows))

    def touching(self, table_id: int, range: Range) -> tuple[Touch, ...]:
        """The snapshots of the range that name the table, oldest first. Other tables' commits cost nothing."""
        rows = self._all(
            "SELECT c.snapshot_id, s.snapshot_time, c.changes_made FROM {}ducklake_snapshot_changes c"
            " JOIN {}ducklake_snapshot s ON s.snapshot_id = c.snapshot_id"
            " WHERE c.snapshot_id > :after AND c.snapshot_id <= :through AND c.changes_made LIKE :mark"
            " ORDER BY c.snapshot_id",
            after=range.after,
            through=range.through,
            mark=f"%:{table_id}%",
        )
        touches = (
            Touch(int(r["snapshot_id"]), _time(r["snapshot_time"]), marks(r["changes_made"], table_id)) for r in rows
        )
        return tuple(touch for touch in touches if touch.marks)

    def only_appended(self, table_id: int, range: Range) -> bool:
        """Whether metadata proves that the range did nothing but insert rows, so its insertions are exact.

        The marks alone do not prove it: they were wrong in 34 of 1049 ranges that were tried. Expiry deletes marks, so
        a range with a hole proves nothing.
        """
        if range.is_empty:
            return True
        touched = frozenset().union(*(touch.marks for touch in self.touching(table_id, range)))
        return touched <= APPENDING and self.contiguous(range) and not self._ended_files(table_id, range)

    def _ended_files(self, table_id: int, range: Range) -> bool:
        row = self._one(
            "SELECT (SELECT count(*) FROM {}ducklake_delete_file WHERE table_id = :table"
            "  AND begin_snapshot > :after AND begin_snapshot <= :through)"
            " + (SELECT count(*) FROM {}ducklake_data_file WHERE table_id = :table"
            "  AND end_snapshot > :after AND end_snapshot <= :through) AS n",
            table=table_id,
            after=range.after,
            through=range.through,
        )
        return int(row["n"]) > 0

    def taken_back(self, table_id: int, range: Range) -> frozenset[int]:
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
            after=range.after,
            through=range.through,
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

    def appended_rows(self, table_id: int, range: Range) -> tuple[tuple[int, int], ...]:
        """Rows by the snapshot that added them, from file metadata: an estimate for cutting, not a count."""
        rows = self._all(
            "SELECT begin_snapshot, sum(record_count) AS rows_added FROM {}ducklake_data_file WHERE table_id = :table"
            " AND begin_snapshot > :after AND begin_snapshot <= :through"
            " GROUP BY begin_snapshot ORDER BY begin_snapshot",
            table=table_id,
            after=range.after,
            through=range.through,
        )
        return tuple((int(row["begin_snapshot"]), int(row["rows_added"])) for row in rows)

    def has_table(self, schema: str, table: str) -> bool:
        """Whether there is such a table now. To ask DuckDB for a missing one opens every other attached lake: it looks
        for similar names there."""
        return self.table_id(schema, table) is not None

    def table_id(self, schema: str, table: str) -> int | None:
        """The id of a table that is there now, else None. Other tables of the lake are not read: it may be shared."""
        rows = self._all(
            "SELECT t.table_id FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            schema=schema,
            table=table,
        )
        return int(rows[0]["table_id"]) if rows else None

    def live_rows(self, schema: str, table: str) -> int:
        """Rows of the table in files, less those that were deleted there, and in the catalog: no file is opened."""
        row = self._one(
            "SELECT t.table_id,"
            " coalesce((SELECT sum(record_count) FROM {}ducklake_data_file WHERE end_snapshot IS NULL"
            "  AND table_id = t.table_id), 0) - coalesce((SELECT sum(d.delete_count) FROM {}ducklake_delete_file d"
            "  JOIN {}ducklake_data_file f ON f.data_file_id = d.data_file_id WHERE f.end_snapshot IS NULL"
            "  AND d.end_snapshot IS NULL AND d.table_id = t.table_id), 0) AS live"
            " FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            schema=schema,
            table=table,
        )
        inlined = [self._inlined_rows(name) for name in self.inlined_into(schema, table)]
        return int(row["live"]) + sum(inlined) - self._deleted_in_catalog(int(row["table_id"]))

    def has_rows(self, schema: str, table: str) -> bool:
        """Whether the table holds a row now, in a file or inlined in the catalog."""
        return self.live_rows(schema, table) > 0

    def inlined_into(self, schema: str, table: str) -> tuple[str, ...]:
        """The catalog's own tables for rows of a table: one for each version of its columns that had inlined rows."""
        found = self._all(
            "SELECT i.table_id, i.schema_version, i.table_name FROM {}ducklake_inlined_data_tables i"
            " JOIN {}ducklake_table t ON t.table_id = i.table_id JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            schema=schema,
            table=table,
        )
        return tuple(self._inlined_name(row) for row in found)

    def _inlined_name(self, row: Row) -> str:
        """The name of a table of inlined rows, which a writer of the catalog could have forged."""
        name = str(row["table_name"])
        if name != f"ducklake_inlined_data_{int(row['table_id'])}_{int(row['schema_version'])}":
            raise DestinationError(
                "lake_incompatible",
                f"the catalog of {self._lake} calls {name[:80]!r} a table of inlined rows, which DuckLake never does",
                "the catalog's own tables were modified: restore ducklake_inlined_data_tables, then resume",
            )
        return name

    def _inlined_rows(self, name: str) -> int:
        sql = "SELECT count(*) AS n FROM {}{inlined} WHERE end_snapshot IS NULL"
        return int(self._one(sql, {"inlined": ident(name)})["n"])

    def _deleted_in_catalog(self, table_id: int) -> int:
        """Rows of the table's files that a small change took away, which DuckLake notes in a table of its own."""
        name = f"ducklake_inlined_delete_{table_id}"
        if not self._has_own_table(name):
            return 0
        sql = (
            "SELECT count(*) AS n FROM {}{inlined} i JOIN {}ducklake_data_file f ON f.data_file_id = i.file_id"
            " WHERE f.end_snapshot IS NULL"
        )
        return int(self._one(sql, {"inlined": ident(name)})["n"])

    def _has_own_table(self, name: str) -> bool:
        if self._lake.sqlite_file is None:
            return bool(self._one("SELECT to_regclass(:name) IS NOT NULL AS there", name=self._prefix + name)["there"])
        return bool(self._all("SELECT name FROM sqlite_master WHERE name = :name", name=name))

    def find_stamp(self, part: str) -> int | None:
        """The newest snapshot whose ``commit_extra_info`` holds ``part`` (a token), of the newest ``LOOKED_BACK``."""
        sql = (
            "SELECT max(snapshot_id) AS found FROM (SELECT snapshot_id, commit_extra_info"
            " FROM {}ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT :newest) AS looked"
            " WHERE commit_extra_info LIKE :part ESCAPE '!'"
        )
        found = self._one(sql, newest=LOOKED_BACK, part=_holding(part))["found"]
        return None if found is None else int(found)

    def stamp_at(self, snapshot: int) -> str | None:
        """What the commit of ``snapshot`` carries in ``commit_extra_info`` if it is Viaduck's, and is retained."""
        sql = (
            "SELECT commit_extra_info FROM {}ducklake_snapshot_changes"
            " WHERE snapshot_id = :snapshot AND author = 'viaduck'"
        )
        rows = self._all(sql, snapshot=snapshot)
        return str(rows[0]["commit_extra_info"]) if rows else None

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

    def stamps(self, part: str = "") -> tuple[str, ...]:
        """What Viaduck's own commits carry in ``commit_extra_info``, oldest first, where it holds ``part``."""
        rows = self._all(
            "SELECT commit_extra_info FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
            " AND commit_extra_info LIKE :part ESCAPE '!' ORDER BY snapshot_id",
            part=_holding(part),
        )
        return tuple(str(row["commit_extra_info"]) for row in rows)

    def history(self, part: str, limit: int, before: int | None = None) -> list[Stamped]:
        """Viaduck's own commits whose ``commit_extra_info`` holds ``part``, the newest first."""
        rows = self._all(
            "SELECT c.snapshot_id, s.snapshot_time, c.commit_message, c.commit_extra_info"
            " FROM {}ducklake_snapshot_changes c JOIN {}ducklake_snapshot s ON s.snapshot_id = c.snapshot_id"
            " WHERE c.author = 'viaduck' AND c.commit_extra_info LIKE :part ESCAPE '!' AND c.snapshot_id < :before"
            " ORDER BY c.snapshot_id DESC LIMIT :most",
            part=_holding(part),
            before=2**62 if before is None else before,
            most=limit,
        )
        return [
            Stamped(int(r["snapshot_id"]), _time(r["snapshot_time"]), r["commit_message"], r["commit_extra_info"])
            for r in rows
        ]

    def layout(self, schema: str, table: str, at: int) -> Layout:
        """How the table's files of snapshot ``at`` are partitioned, as far as it decides what a scan may leave out."""
        rows = self._all(
            "SELECT c.transform, k.column_name, (SELECT count(*) FROM {}ducklake_data_file f"
            "  WHERE f.table_id = t.table_id AND (f.partition_id IS NULL OR f.partition_id <> p.partition_id)"
            "  AND f.begin_snapshot <= :at AND (f.end_snapshot IS NULL OR f.end_snapshot > :at)) AS others"
            " FROM {}ducklake_schema s JOIN {}ducklake_table t ON t.schema_id = s.schema_id"
            " JOIN {}ducklake_partition_info p ON p.table_id = t.table_id"
            " JOIN {}ducklake_partition_column c ON c.table_id = t.table_id AND c.partition_id = p.partition_id"
            " JOIN {}ducklake_column k ON k.table_id = t.table_id AND k.column_id = c.column_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND t.begin_snapshot <= :at AND (t.end_snapshot IS NULL OR t.end_snapshot > :at)"
            " AND s.begin_snapshot <= :at AND (s.end_snapshot IS NULL OR s.end_snapshot > :at)"
            " AND p.begin_snapshot <= :at AND (p.end_snapshot IS NULL OR p.end_snapshot > :at)"
            " AND k.begin_snapshot <= :at AND (k.end_snapshot IS NULL OR k.end_snapshot > :at)",
            schema=schema,
            table=table,
            at=at,
        )
        return layout_of((str(r["transform"]), str(r["column_name"]).lower(), int(r["others"])) for r in rows)

    def data_path(self) -> str:
        return str(self._one("SELECT value AS path FROM {}ducklake_metadata WHERE key = 'data_path'")["path"])

    def inlined_tables(self) -> frozenset[str]:
        """The catalog's own tables that hold inlined rows. An attached lake remembers them as it first saw them, though
        a flush may drop one without a new schema version (H12)."""
        found = self._all("SELECT table_id, schema_version, table_name FROM {}ducklake_inlined_data_tables")
        return frozenset(self._inlined_name(row) for row in found)

    def present(self, seen: int) -> Present:
        """One statement for all that tells whether what is remembered since snapshot ``seen`` still holds."""
        found = self._all(
            "SELECT snapshot_id, snapshot_time, NULL AS table_id, NULL AS schema_version, NULL AS table_name"
            " FROM {}ducklake_snapshot WHERE snapshot_id = :seen"
            " OR snapshot_id = (SELECT max(snapshot_id) FROM {}ducklake_snapshot)"
            " UNION ALL SELECT NULL, NULL, table_id, schema_version, table_name FROM {}ducklake_inlined_data_tables",
            seen=seen,
        )
        times = {int(row["snapshot_id"]): _time(row["snapshot_time"]) for row in found if row["table_name"] is None}
        if not times:
            raise LookupError("the catalog has no snapshot")
        inlined = frozenset(self._inlined_name(row) for row in found if row["table_name"] is not None)
        return Present(inlined, max(times), times)

    def tables(self) -> tuple[tuple[str, str], ...]:
        """(schema, table) of every table that is there now."""
        rows = self._all(
            "SELECT s.schema_name, t.table_name FROM {}ducklake_table t JOIN {}ducklake_schema s"
            " ON s.schema_id = t.schema_id WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
        )
        return tuple((row["schema_name"], row["table_name"]) for row in rows)

    def worn_files(self, schema: str, table: str, share: float) -> frozenset[str]:
        """Names (last path part) of the table's files of whose rows a larger share than ``share`` is deleted."""
        rows = self._all(
            "SELECT f.path, f.record_count, d.delete_count FROM {}ducklake_delete_file d"
            " JOIN {}ducklake_data_file f ON f.data_file_id = d.data_file_id"
            " WHERE d.table_id = :table AND d.end_snapshot IS NULL AND f.end_snapshot IS NULL",
            table=self.table_id(schema, table) or 0,
        )
        worn = (row for row in rows if int(row["delete_count"]) > share * int(row["record_count"]))
        return frozenset(str(row["path"]).rsplit("/", 1)[-1] for row in worn)

    def files_of(self, snapshot: int) -> frozenset[str]:
        """Names (last path part) of the data and delete files that the snapshot added."""
        rows = self._all(
            "SELECT path FROM {}ducklake_data_file WHERE begin_snapshot = :at"
            " UNION ALL SELECT path FROM {}ducklake_delete_file WHERE begin_snapshot = :at",
            at=snapshot,
        )
        return frozenset(str(row["path"]).rsplit("/", 1)[-1] for row in rows)

    def select(self, sql: str, **values: Value) -> Sequence[Row]:
        """The rows of a query of the caller's own; ``{}`` and ``:key`` in it as in this class's."""
        return self._all(sql, **values)

    def _one(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Row:
        rows = self._all(sql, names, **values)
        if not rows:
            raise LookupError("the catalog has no snapshot")
        return rows[0]

    def _all(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Sequence[Row]:
        """Ask: ``{}`` in ``sql`` is the lake's own schema, ``{key}`` an identifier of ``names``, ``:key`` a value."""
        if self._statements is None:
            self._statements = _own_statements(self._lake)
        question = Question(sql, {"": self._prefix, **(names or {})}, values)
        try:
            return self._statements.rows(question)
        except (duckdb.Error, psycopg.Error, OSError) as error:
            self.close()
            raise classify(error, f"reading the catalog of {self._lake}") from None


def _own_statements(lake: ResolvedLake) -> Statements:
    file = lake.sqlite_file
    return Postgres(lake.conninfo) if file is None else OwnSqlite(connect(catalogs=(SQLITE,)), file)


def _holding(part: str) -> str:
    """A pattern of LIKE for texts that hold ``part`` to the letter: names may have a ``_`` or a ``%``."""
    return "%" + re.sub("[!%_]", r"!\g<0>", part) + "%"


def marks(changes_made: str, table_id: int) -> frozenset[str]:
    """What a snapshot's ``changes_made`` says of one table. Quoted names may hold anything, so they go first."""
    bare = re.sub(r'"(?:[^"]|"")*"', "", changes_made)
    return frozenset(re.findall(rf"(?:^|,)([a-z_]+):{table_id}(?=,|$)", bare))


def _time(value: datetime | str) -> datetime:
    """A catalog's time: a TIMESTAMPTZ on Postgres, text on SQLite."""
    when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


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
    )


def _column(field: Field) -> Column:
    return Column(field.name, field.declared, field.default)
