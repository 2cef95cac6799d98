"""The first commit to a table: the rows that each metadata table gets, as DuckLake's extension would add them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from shared.lake.connection.query import Question
from shared.lake.direct import rows as metadata_rows
from shared.lake.direct.batch import CommitBatch, CommitContext
from shared.lake.direct.columns import new_columns
from shared.lake.direct.new_table import NewTables
from shared.lake.direct.rows import PLAIN, Names, places_of, values_of
from shared.lake.direct.state import CURSOR_TYPES, ColumnStats, NewestSnapshot
from shared.lake.direct.statistics import merged
from shared.lake.direct.written import Written
from shared.lake.sql import ident

OF_TABLE = (PLAIN, "CAST({} AS {{uuid}})", PLAIN, PLAIN, PLAIN, PLAIN, "CAST(1 AS {{boolean}})")
OF_SCHEMA = (PLAIN, "CAST({} AS {{uuid}})", PLAIN, PLAIN, PLAIN, "CAST(1 AS {{boolean}})")
TRIPLE = (PLAIN, PLAIN, PLAIN)
OF_COLUMN = (PLAIN, PLAIN, PLAIN, "'comment', {}")
OPTION = ("'data_inlining_row_limit', {}, 'table'", PLAIN)

INLINED = {
    name: {"varchar": "{text}", "int64": "BIGINT", "timestamptz": "VARCHAR"}[kind]
    for name, kind in CURSOR_TYPES.items()
}
"""Columns of the table for the cursor's inlined rows. Moments are kept as text in either catalog."""

INLINED_DELETES = "(file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)"


@dataclass(frozen=True)
class FirstCommit:
    """Makes the tables, with the data file of ``written``, the context's cursor and the options of both tables.

    ``seen`` is the newest snapshot of the lake, with which the tables' place was looked at. ``cursor_rows``: so many
    rows of the cursor's table DuckLake is to keep in the catalog; of the table none.
    """

    context: CommitContext
    seen: NewestSnapshot
    tables: NewTables
    written: Written
    cursor_rows: int

    def batch(self) -> CommitBatch:
        """TLA: ``CommitDirect``."""
        new = NewestSnapshot(
            self.snapshot, self.tables.structure.schema_version, self.tables.next_catalog_id,
            self.first_file + len(self.written.names),
        )  # fmt: skip
        rest = (
            *self._described(), *self._schemas(), *self._tables(), *self._columns(), *self._comments(),
            *self._options(), *self._data(),
            metadata_rows.new_table_stats(self._names, self.tables.cursor.id, 1, 0),
            metadata_rows.new_column_stats(self._names, dict(self._stats())),
        )  # fmt: skip
        return CommitBatch(
            self.snapshot,
            metadata_rows.claim(self._names, self.context.dialect, new, self.context.now),
            self._condition(),
            rest,
            tuple(self._made()),
        )

    @property
    def snapshot(self) -> int:
        return self.seen.id + 1

    @property
    def first_file(self) -> int:
        """The extension counts inlined rows, here the cursor's, as a file."""
        return self.seen.next_file_id + 1

    @cached_property
    def _names(self) -> Names:
        return {
            "": self.context.prefix,
            **self.context.dialect.functions,
            "cursor_rows": ident(self._cursor_rows_table),
        }

    @property
    def _cursor_rows_table(self) -> str:
        return self.tables.structure.cursor_inlined[0]

    def _condition(self) -> Question:
        """Nothing was committed since the look, so no other writer has made the tables. TLA: ``CheckCondition``."""
        return Question(
            "SELECT CASE WHEN (SELECT max(snapshot_id) FROM {}ducklake_snapshot) = :new"
            " AND (SELECT max(snapshot_id) FROM {}ducklake_snapshot WHERE snapshot_id < :new) = :seen"
            " THEN 1 ELSE 0 END AS held",
            self._names,
            {"new": self.snapshot, "seen": self.seen.id},
        )

    # -- what there is ------------------------------------------------------------------------------------------------

    def _described(self) -> Iterator[Question]:
        table, cursor = self.tables.table, self.tables.cursor
        made = [f"created_schema:{ident(schema.name)}" for schema in self.tables.schemas]
        made += [f"created_table:{ident(each.schema.name)}.{ident(each.name)}" for each in (cursor, table)]
        made += [f"inserted_into_table:{table.id:d}"] if self.written.data is not None else []
        yield metadata_rows.changes(
            self._names, self.snapshot, ",".join([*made, f"inlined_insert:{cursor.id:d}"]), self.context.stamp
        )

    def _schemas(self) -> Iterator[Question]:
        lines = [(each.id, str(uuid.uuid4()), self.snapshot, each.name, each.path) for each in self.tables.schemas]
        if lines:
            yield Question(
                "INSERT INTO {}ducklake_schema (schema_id, schema_uuid, begin_snapshot, schema_name, path,"
                " path_is_relative) VALUES " + places_of(OF_SCHEMA, len(lines)),
                self._names,
                values_of(lines),
            )

    def _tables(self) -> Iterator[Question]:
        both, version = (self.tables.table, self.tables.cursor), self.tables.structure.schema_version
        lines = [(t.id, str(uuid.uuid4()), self.snapshot, t.schema.id, t.name, t.path) for t in both]
        yield Question(
            "INSERT INTO {}ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path,"
            " path_is_relative) VALUES " + places_of(OF_TABLE, len(lines)),
            self._names,
            values_of(lines),
        )
        yield Question(
            "INSERT INTO {}ducklake_schema_versions (begin_snapshot, schema_version, table_id) VALUES "
            + places_of(TRIPLE, len(both)),
            self._names,
            values_of([(self.snapshot, version, each.id) for each in both]),
        )
        yield Question(
            "INSERT INTO {}ducklake_inlined_data_tables (table_id, table_name, schema_version)"
            " VALUES (:cursor, :name, :version)",
            self._names,
            {"cursor": self.tables.cursor.id, "name": self._cursor_rows_table, "version": version},
        )

    def _columns(self) -> Iterator[Question]:
        both = [(each.id, each.fields) for each in (self.tables.table, self.tables.cursor)]
        yield new_columns(self._names, both, self.snapshot)

    def _comments(self) -> Iterator[Question]:
        table, comments = self.tables.table, self.tables.table.comments
        if comments.table is not None:
            yield Question(
                "INSERT INTO {}ducklake_tag (object_id, begin_snapshot, key, value)"
                " VALUES (:table, :new, 'comment', :comment)",
                self._names,
                {"table": table.id, "new": self.snapshot, "comment": comments.table},
            )
        if comments.columns:
            lines = [(table.id, column, self.snapshot, said) for column, said in comments.columns.items()]
            yield Question(
                "INSERT INTO {}ducklake_column_tag (table_id, column_id, begin_snapshot, key, value) VALUES "
                + places_of(OF_COLUMN, len(lines)),
                self._names,
                values_of(lines),
            )

    def _options(self) -> Iterator[Question]:
        lines = [(str(self.cursor_rows), self.tables.cursor.id), ("0", self.tables.table.id)]
        yield Question(
            "INSERT INTO {}ducklake_metadata (key, value, scope, scope_id) VALUES " + places_of(OPTION, len(lines)),
            self._names,
            values_of(lines),
        )

    # -- what is in it ------------------------------------------------------------------------------------------------

    def _data(self) -> Iterator[Question]:
        data, table = self.written.data, self.tables.table.id
        if data is not None:
            yield from metadata_rows.data_file(self._names, self.first_file, table, self.snapshot, 0, data)
            yield metadata_rows.new_table_stats(self._names, table, data.records, data.bytes)

    def _stats(self) -> Iterator[tuple[tuple[int, int], ColumnStats]]:
        values = metadata_rows.cursor_values(self.context.cursor)
        for field in self.tables.cursor.fields:
            value = values[field.name]
            text = None if value is None else str(value)
            yield (self.tables.cursor.id, field.id), ColumnStats(value is None, None, text, text)
        for column in () if self.written.data is None else self.written.data.columns:
            stats = merged(None, column, was_empty=True)
            if stats is not None:
                yield (self.tables.table.id, column.column_id), stats

    def _made(self) -> Iterator[Question]:
        """The catalog's own tables: for the cursor's row, and those that DuckLake would look for in vain."""
        yield Question(f"CREATE TABLE {{}}{{cursor_rows}} ({_inlined_columns()})", self._names, {})
        yield metadata_rows.cursor_row(self._names, self.context.dialect, 0, self.snapshot, self.context.cursor)
        for name in sorted(self.tables.structure.optional):
            names = {"": self.context.prefix, "deletes": ident(name)}
            yield Question(f"CREATE TABLE {{}}{{deletes}} {INLINED_DELETES}", names, {})


def _inlined_columns() -> str:
    own = ", ".join(f"{ident(name)} {declared}" for name, declared in INLINED.items())
    return f"row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, {own}"
