"""The tables of a lake as its catalog has them now: their files, and the rows inlined in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.contracts.errors import DestinationError
from shared.lake.connection.statements import CatalogConnection, Row, catalog_time
from shared.lake.sql import ident


@dataclass(frozen=True)
class Present:
    """What a catalog says now of what an attached lake remembers of it: its own tables of inlined rows, its newest
    snapshot, and when some snapshots were committed, of those that are still retained."""

    inlined: frozenset[str]
    head: int
    times: Mapping[int, datetime]


def inlined_table(table_id: Any, schema_version: Any) -> str | None:
    """What DuckLake calls its table of inlined rows; None for ids that it never writes."""
    try:
        return f"ducklake_inlined_data_{int(table_id)}_{int(schema_version)}"
    except (TypeError, ValueError):
        return None


class CurrentTables(CatalogConnection):
    """Asks for the newest snapshot only; ``shared.lake.catalog`` asks for older ones."""

    def tables(self) -> tuple[tuple[str, str], ...]:
        """(schema, table) of every table that is there now."""
        rows = self._all(
            "SELECT s.schema_name, t.table_name FROM {}ducklake_table t JOIN {}ducklake_schema s"
            " ON s.schema_id = t.schema_id WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
        )
        return tuple((row["schema_name"], row["table_name"]) for row in rows)

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

    def data_path(self) -> str:
        return str(self._one("SELECT value AS path FROM {}ducklake_metadata WHERE key = 'data_path'")["path"])

    def is_encrypted(self) -> bool:
        """Whether the lake's files are encrypted, which is settled when it is created."""
        found = self._all("SELECT value FROM {}ducklake_metadata WHERE key = 'encrypted' AND scope IS NULL")
        return any(row["value"] == "true" for row in found)

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

    def has_inlined(self, schema: str, table: str) -> bool:
        """Whether rows of the table, living or dead, or deletes in its files are in the catalog."""
        deletes = f"ducklake_inlined_delete_{self.table_id(schema, table)}"
        names = (*self.inlined_into(schema, table), *((deletes,) if self._has_own_table(deletes) else ()))
        return any(self._holds_rows(name) for name in names)

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
        times = {
            int(row["snapshot_id"]): catalog_time(row["snapshot_time"]) for row in found if row["table_name"] is None
        }
        if not times:
            raise LookupError("the catalog has no snapshot")
        inlined = frozenset(self._inlined_name(row) for row in found if row["table_name"] is not None)
        return Present(inlined, max(times), times)

    def doubtful_bounds(self, schema: str, table: str) -> tuple[tuple[int, int], ...]:
        """Ids of the table and of each of its columns whose bounds an insert may make too narrow: it had another type
        before (H27), or the table has no bounds of it where a file has (H24)."""
        found = self._all(
            "SELECT k.table_id, k.column_id FROM {}ducklake_table_column_stats k"
            " JOIN {}ducklake_table t ON t.table_id = k.table_id AND t.end_snapshot IS NULL"
            " JOIN {}ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND ((SELECT count(DISTINCT c.column_type) FROM {}ducklake_column c"
            " WHERE c.table_id = k.table_id AND c.column_id = k.column_id) > 1"
            " OR ((k.min_value IS NULL OR k.max_value IS NULL) AND EXISTS (SELECT 1 FROM {}ducklake_file_column_stats f"
            " WHERE f.table_id = k.table_id AND f.column_id = k.column_id AND f.min_value IS NOT NULL)))",
            schema=schema,
            table=table,
        )
        return tuple((int(row["table_id"]), int(row["column_id"])) for row in found)

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

    def _inlined_name(self, row: Row) -> str:
        """The name of a table of inlined rows, which a writer of the catalog could have forged."""
        name = str(row["table_name"])
        if name != inlined_table(row["table_id"], row["schema_version"]):
            raise DestinationError(
                "lake_incompatible",
                f"the catalog of {self._lake} calls {name[:80]!r} a table of inlined rows, which DuckLake never does",
                "the catalog's own tables were modified: restore ducklake_inlined_data_tables, then resume",
            )
        return name

    def _inlined_rows(self, name: str) -> int:
        sql = "SELECT count(*) AS n FROM {}{inlined} WHERE end_snapshot IS NULL"
        return int(self._one(sql, {"inlined": ident(name)})["n"])

    def _holds_rows(self, name: str) -> bool:
        return bool(self._all("SELECT 1 FROM {}{inlined} LIMIT 1", {"inlined": ident(name)}))

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
