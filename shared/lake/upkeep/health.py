"""How a lake's tables fare, by plain SQL on its catalog: one statement for all tables asked for, and no file is opened.

Rows that the catalog holds inline are in tables of its own, whose names the first statement tells; where a table has
such rows, one more statement counts them. A SQLite catalog is asked first whether its tables are tables. Of a file that
waits for clean-up a catalog keeps the path, and no size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import duckdb

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.engine import SQLITE, connect
from shared.lake.connection.statements import Postgres, Row, Statements, VisitedSqlite, catalog_time
from shared.lake.failure import classify
from shared.lake.sql import ident

FORMAT = "1.0"
"""The version of the catalogs that this DuckLake reads and writes."""

MOST_TABLES = 500
"""Of one lake, in one statement."""

MOST_COUNTED = 200
"""Tables of inlined rows that are counted in one statement: SQLite unites no more than 500 queries."""

TRIES = 2
"""A flush between the two statements takes a table of inlined rows away: then both are asked again."""

MEMORY_LIMIT = "200MB"

MOST_COUNT = 2**62
"""Of rows, files or bytes: what a message may carry."""

ROWS, DELETED = 1, 2
"""What the catalog holds inline: rows, and deletions of rows that are in files."""

LAKE = (
    "WITH lake AS (SELECT count(*) AS snapshots, min(snapshot_id) AS oldest FROM {}ducklake_snapshot),"
    " asked(place, schema_name, table_name) AS (VALUES "
)
"""Of a lake that is not there Postgres names the relation that is asked for first: it is told apart by this one."""

FOUND = (
    "), found AS (SELECT a.place, t.table_id FROM asked a"
    "  JOIN {}ducklake_schema s ON lower(s.schema_name) = lower(a.schema_name) AND s.end_snapshot IS NULL"
    "  JOIN {}ducklake_table t ON t.schema_id = s.schema_id AND lower(t.table_name) = lower(a.table_name)"
    "   AND t.end_snapshot IS NULL),"
)

FIGURES = (
    " data AS (SELECT table_id, sum(CASE WHEN end_snapshot IS NULL THEN 1 ELSE 0 END) AS files,"
    "  sum(CASE WHEN end_snapshot IS NULL THEN file_size_bytes ELSE 0 END) AS bytes,"
    "  sum(CASE WHEN end_snapshot IS NULL THEN record_count ELSE 0 END) AS records,"
    "  sum(CASE WHEN end_snapshot IS NULL AND file_size_bytes <= :small THEN 1 ELSE 0 END) AS small_files,"
    "  sum(CASE WHEN end_snapshot IS NULL THEN 0 ELSE 1 END) AS old_files,"
    "  sum(CASE WHEN end_snapshot IS NULL THEN 0 ELSE file_size_bytes END) AS old_bytes"
    "  FROM {}ducklake_data_file WHERE table_id IN (SELECT table_id FROM found) GROUP BY table_id),"
    " live AS (SELECT data_file_id FROM {}ducklake_data_file"
    "  WHERE end_snapshot IS NULL AND table_id IN (SELECT table_id FROM found)),"
    " marked AS (SELECT d.table_id, d.delete_count, d.file_size_bytes,"
    "  CASE WHEN d.end_snapshot IS NULL AND l.data_file_id IS NOT NULL THEN 1 ELSE 0 END AS is_live"
    "  FROM {}ducklake_delete_file d LEFT JOIN live l ON l.data_file_id = d.data_file_id"
    "  WHERE d.table_id IN (SELECT table_id FROM found)),"
    " dead AS (SELECT table_id, sum(is_live) AS delete_files, sum(is_live * delete_count) AS dead_rows,"
    "  sum(1 - is_live) AS old_files, sum((1 - is_live) * file_size_bytes) AS old_bytes"
    "  FROM marked GROUP BY table_id)"
    " SELECT a.place, f.table_id, coalesce(data.files, 0) AS files, coalesce(data.bytes, 0) AS bytes,"
    "  coalesce(data.records, 0) AS records, coalesce(data.small_files, 0) AS small_files,"
    "  coalesce(dead.delete_files, 0) AS delete_files, coalesce(dead.dead_rows, 0) AS dead_rows,"
    "  coalesce(data.old_files, 0) + coalesce(dead.old_files, 0) AS old_files,"
    "  coalesce(data.old_bytes, 0) + coalesce(dead.old_bytes, 0) AS old_bytes,"
    "  lake.snapshots, lake.oldest,"
    "  (SELECT snapshot_time FROM {}ducklake_snapshot WHERE snapshot_id = lake.oldest) AS oldest_at,"
    "  (SELECT count(*) FROM {}ducklake_files_scheduled_for_deletion) AS cleanup_files,"
    "  (SELECT min(value) FROM {}ducklake_metadata WHERE key = 'version') AS format_version,"
)

FROM = (
    " FROM asked a CROSS JOIN lake LEFT JOIN found f ON f.place = a.place"
    " LEFT JOIN data ON data.table_id = f.table_id LEFT JOIN dead ON dead.table_id = f.table_id"
)

ON_POSTGRES = (
    " (SELECT string_agg(CAST(i.schema_version AS text), ',') FROM {}ducklake_inlined_data_tables i"
    "  WHERE i.table_id = f.table_id) AS inlined,"
    " CAST(to_regclass(CAST(:prefix AS text) || 'ducklake_inlined_delete_' || CAST(f.table_id AS text)) IS NOT NULL"
    "  AS int) AS deletes_inlined, now() AS catalog_now"
)

ON_SQLITE = (
    " (SELECT group_concat(i.schema_version) FROM {}ducklake_inlined_data_tables i"
    "  WHERE i.table_id = f.table_id) AS inlined,"
    " (SELECT count(*) FROM sqlite_master WHERE name = 'ducklake_inlined_delete_' || f.table_id)"
    "  AS deletes_inlined, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now') AS catalog_now"
)


VIEWS = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND rootpage = 0 LIMIT 1"
"""Views and virtual tables, which have no page of their own. DuckLake makes none."""


@dataclass(frozen=True)
class TableHealth:
    """One table's figures now, and those of the lake that it is in. Sizes are in bytes."""

    format_version: str
    files: int
    bytes: int
    rows: int
    """Rows that the table shows, wherever they are."""
    delete_files: int
    dead_rows: int
    """Rows of live files that are deleted."""
    inlined_rows: int
    small_files: int
    old_files: int
    """Data and delete files of the table that only older snapshots show; expiry and clean-up free them."""
    old_bytes: int
    cleanup_files: int
    """Files of the whole lake that wait for clean-up."""
    snapshots: int
    oldest_snapshot: int
    oldest_at: datetime
    oldest_age_s: float
    """By the catalog's own clock."""


class HealthReader:
    """Looks at one lake after the other. Lakes of one database that follow one another share a connection.

    One thread at a time. ``look`` raises a ``ViaduckError`` for a lake that does not answer or is none of ours.
    """

    def __init__(self, small_bytes: int) -> None:
        """``small_bytes``: up to this size a file counts as small."""
        self._small_bytes = small_bytes
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._server: tuple[str, Postgres] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._leave_server()
        if self._duck is not None:
            self._duck.close()
            self._duck = None

    def look(self, lake: ResolvedLake, tables: Sequence[tuple[str, str]]) -> list[TableHealth]:
        """The health of each of the tables, (schema, name), in their order. A missing table has no files."""
        parts = [tables[start : start + MOST_TABLES] for start in range(0, len(tables), MOST_TABLES)]
        try:
            with self._catalog(lake) as catalog:
                if lake.sqlite_file is not None:
                    _require_tables(catalog, lake)
                return [each for part in parts for each in self._look(catalog, lake, part)]
        except duckdb.Error as error:  # of the instance itself, which is rebuilt for the next lake
            self.close()
            raise classify(error, f"reading the catalog of {lake}") from None

    def _look(self, catalog: CatalogReader, lake: ResolvedLake, tables: Sequence[tuple[str, str]]) -> list[TableHealth]:
        for attempt in range(1, TRIES + 1):
            try:
                return _read(catalog, lake, tables, self._small_bytes)
            except (ValueError, TypeError, OverflowError, ArithmeticError):
                raise _unlikely(lake) from None
            except ViaduckError as error:
                if attempt == TRIES or error.type not in ("lake_missing", "internal"):
                    raise
        raise AssertionError("not reached")

    @contextlib.contextmanager
    def _catalog(self, lake: ResolvedLake) -> Iterator[CatalogReader]:
        statements = self._statements(lake)
        try:
            yield CatalogReader(lake, statements)
        finally:
            if isinstance(statements, VisitedSqlite):
                statements.close()

    def _statements(self, lake: ResolvedLake) -> Statements:
        file = lake.sqlite_file
        if file is not None:
            self._duck = self._duck or connect(memory_limit=MEMORY_LIMIT, catalogs=(SQLITE,))
            return VisitedSqlite(self._duck, file)
        conninfo = lake.conninfo
        if self._server is None or self._server[0] != conninfo:
            self._leave_server()
            self._server = conninfo, Postgres(conninfo)
        return self._server[1]

    def _leave_server(self) -> None:
        if self._server is not None:
            self._server[1].close()
            self._server = None


def _require_tables(catalog: CatalogReader, lake: ResolvedLake) -> None:
    """A view in the place of a table is SQL of any client that may write to the file. Without an end it would hold up
    the looks at all lakes, since SQLite, unlike Postgres, ends no statement by itself."""
    others = catalog.select(VIEWS)
    if others:
        said = f"{str(others[0]['name'])[:80]!r} in the catalog of {lake} is no table"
        raise DestinationError("unsafe_catalog", said, "drop it, and restore the table of that name from a backup")


def _read(
    catalog: CatalogReader, lake: ResolvedLake, tables: Sequence[tuple[str, str]], small_bytes: int
) -> list[TableHealth]:
    rows = sorted(_ask(catalog, lake, tables, small_bytes), key=lambda row: int(row["place"]))
    for row in rows:
        _require_format(str(row["format_version"]), lake)
    counted = _count_inlined(catalog, rows)
    places = [int(row["place"]) for row in rows]
    return [
        _health(row, counted.get((place, ROWS), 0), counted.get((place, DELETED), 0))
        for row, place in zip(rows, places, strict=True)
    ]


def _ask(
    catalog: CatalogReader, lake: ResolvedLake, tables: Sequence[tuple[str, str]], small_bytes: int
) -> Sequence[Row]:
    places = ", ".join(f"({place:d}, :s{place:d}, :t{place:d})" for place in range(len(tables)))
    names = {f"s{place}": schema for place, (schema, _) in enumerate(tables)}
    names |= {f"t{place}": table for place, (_, table) in enumerate(tables)}
    asked = LAKE + places
    if lake.sqlite_file is not None:
        return catalog.select(asked + FOUND + FIGURES + ON_SQLITE + FROM, small=small_bytes, **names)
    sql = asked + FOUND + FIGURES + ON_POSTGRES + FROM
    return catalog.select(sql, small=small_bytes, prefix=f"{ident(lake.schema)}.", **names)


def _count_inlined(catalog: CatalogReader, rows: Sequence[Row]) -> Mapping[tuple[int, int], int]:
    """By the table's place, and ``ROWS`` or ``DELETED``."""
    counts = [each for row in rows if row["table_id"] is not None for each in _counts(row)]
    found: dict[tuple[int, int], int] = {}
    for start in range(0, len(counts), MOST_COUNTED):
        for row in catalog.select(" UNION ALL ".join(counts[start : start + MOST_COUNTED])):
            key = int(row["place"]), int(row["kind"])
            found[key] = found.get(key, 0) + int(row["n"])
    return found


def _counts(row: Row) -> list[str]:
    place, table = int(row["place"]), int(row["table_id"])
    versions = sorted({int(version) for version in str(row["inlined"] or "").split(",") if version})
    counts = [
        f"SELECT {place:d} AS place, {ROWS:d} AS kind, count(*) AS n"
        f" FROM {{}}ducklake_inlined_data_{table:d}_{version:d} WHERE end_snapshot IS NULL"
        for version in versions
    ]
    if int(row["deletes_inlined"]):
        counts.append(
            f"SELECT {place:d} AS place, {DELETED:d} AS kind, count(*) AS n"
            f" FROM {{}}ducklake_inlined_delete_{table:d} i JOIN {{}}ducklake_data_file f"
            " ON f.data_file_id = i.file_id WHERE f.end_snapshot IS NULL"
        )
    return counts


def _health(row: Row, inlined: int, deleted: int) -> TableHealth:
    figures = {name: _count(row[name]) for name in COUNTED}
    dead = _count(row["dead_rows"]) + deleted
    oldest_at = catalog_time(row["oldest_at"])
    return TableHealth(
        format_version=str(row["format_version"]),
        rows=_count(row["records"]) - dead + inlined,
        dead_rows=dead,
        inlined_rows=inlined,
        oldest_snapshot=_count(row["oldest"]),
        oldest_at=oldest_at,
        oldest_age_s=max(0.0, (catalog_time(row["catalog_now"]) - oldest_at).total_seconds()),
        **figures,
    )


COUNTED = ("files", "bytes", "delete_files", "small_files", "old_files", "old_bytes", "cleanup_files", "snapshots")


def _count(value: Any) -> int:
    """A number of rows, files or bytes. Raises ``ValueError`` for a value that none of these can have."""
    number = int(value)
    if not 0 <= number <= MOST_COUNT:
        raise ValueError(f"{number} is no count")
    return number


def _require_format(version: str, lake: ResolvedLake) -> None:
    if version != FORMAT:
        said = f"the catalog of {lake} has the format {version[:40]!r}, and this DuckLake knows {FORMAT}"
        raise DestinationError("lake_incompatible", said, "upgrade Viaduck and its DuckLake together, or the lake")


def _unlikely(lake: ResolvedLake) -> DestinationError:
    return DestinationError(
        "lake_incompatible",
        f"the catalog of {lake} holds figures that DuckLake never writes",
        "another program wrote to the catalog's own tables: restore them from a backup",
    )
