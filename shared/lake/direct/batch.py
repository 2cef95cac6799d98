"""A commit as the rows that each metadata table gets: values of the look and of the files that were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from shared.lake.connection.dialect import Dialect, timestamptz
from shared.lake.connection.query import Question, Value
from shared.lake.direct.columns import Alteration, alter
from shared.lake.direct.rows import (
    FLAG,
    PLAIN,
    CommitMessage,
    Names,
    changes,
    claim,
    cursor_row,
    cursor_values,
    data_file,
    new_column_stats,
    new_table_stats,
    places_of,
    stats_row,
    values_of,
)
from shared.lake.direct.state import ColumnStats, CursorRow, TableState
from shared.lake.direct.statistics import FileColumn, merged
from shared.lake.direct.structure import Structure
from shared.lake.direct.written import Written
from shared.lake.sql import ident

MOST_NAMED = 1_000
"""Files that one statement names: a seed ends all that a table has."""

DELETE_FILE = (PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, "CAST(1 AS {{boolean}}), 'parquet', {}", PLAIN, PLAIN, PLAIN)
SCHEDULED = ("CAST({} AS BIGINT)", "CAST({} AS VARCHAR)")
CHANGED_STATS = ("CAST({} AS BIGINT)", "CAST({} AS BIGINT)", FLAG, FLAG, "CAST({} AS VARCHAR)", "CAST({} AS VARCHAR)")


@dataclass(frozen=True)
class CommitBatch:
    """A batch, in its order: ``claim`` takes the snapshot's number, ``condition`` tells (as ``held``) whether all is as
    it was looked at, and only then comes the ``rest``.

    ``made`` are new tables of the catalog's own, and what goes into them: no part of a statement with others.

    The condition has to be read under a newer view than the claim: under an older one a rival may have committed that
    number meanwhile and an owner have expired it, so that the claim succeeds below the newest snapshot.
    """

    snapshot: int
    claim: Question
    condition: Question
    rest: tuple[Question, ...]
    made: tuple[Question, ...] = ()


@dataclass(frozen=True)
class CommitContext:
    """Where a commit goes, by whom and when: what all of its statements need beside rows.

    ``cursor``: the new cursor's row, values by ``cursor_columns``.
    """

    dialect: Dialect
    prefix: str
    cursor: Mapping[str, Any]
    stamp: CommitMessage
    now: datetime


@dataclass(frozen=True)
class NextCommit:
    """Makes ``written`` and the new cursor the next snapshot of a table that is there.

    ``alteration``: what becomes of the table's columns, which are the structure's until then.
    """

    context: CommitContext
    structure: Structure
    state: TableState
    written: Written
    alteration: Alteration | None = None

    def batch(self) -> CommitBatch:
        rest = [*self._changes(), *self._altered(), *self._data(), *self._deletes()]
        rest += [*self._table_stats(), *self._column_stats(), *self._cursor_rows()]
        return CommitBatch(self.snapshot, self._claim(), self._condition(), tuple(rest))

    @property
    def snapshot(self) -> int:
        return self.state.snapshot.id + 1

    @property
    def schema_version(self) -> int:
        """Who remembers a table's columns looks at it to see whether they are still the same."""
        return self.state.snapshot.schema_version + (self.alteration is not None)

    @property
    def seen_cursor(self) -> CursorRow:
        return self.state.cursors[0]

    @cached_property
    def _names(self) -> Names:
        return {
            "": self.context.prefix,
            **self.context.dialect.functions,
            "cursor_rows": ident(self.structure.cursor_inlined[0]),
        }

    def _question(self, sql: str, values: Mapping[str, Value]) -> Question:
        return Question(sql, self._names, values)

    # -- the snapshot -------------------------------------------------------------------------------------------------

    def _claim(self) -> Question:
        seen = self.state.snapshot
        files = seen.next_file_id + len(self.written.names)
        new = replace(seen, id=self.snapshot, schema_version=self.schema_version, next_file_id=files)
        return claim(self._names, self.context.dialect, new, self.context.now)

    def _condition(self) -> Question:
        """Neither the newest snapshot before the claimed one nor the cursor's row has changed since the look.

        TLA: ``CheckCondition``.
        """
        return self._question(
            "SELECT CASE WHEN (SELECT max(snapshot_id) FROM {}ducklake_snapshot) = :new"
            " AND (SELECT max(snapshot_id) FROM {}ducklake_snapshot WHERE snapshot_id < :new) = :seen"
            " AND (SELECT count(*) FROM {}{cursor_rows}"
            "  WHERE row_id = :row AND begin_snapshot = :begin AND end_snapshot IS NULL) = 1 THEN 1 ELSE 0 END AS held",
            {
                "new": self.snapshot,
                "seen": self.state.snapshot.id,
                "row": self.seen_cursor.row_id,
                "begin": self.seen_cursor.begin_snapshot,
            },
        )

    def _changes(self) -> Iterable[Question]:
        table, cursor = self.structure.table_id, self.structure.cursor_id
        inserted = f"inserted_into_table:{table:d}," if self.written.data is not None else ""
        deleted = f"deleted_from_table:{table:d}," if self.written.deletes or self.written.ended else ""
        altered = f"altered_table:{table:d}," if self.alteration is not None else ""
        made = f"{inserted}{deleted}{altered}inlined_insert:{cursor:d},inlined_delete:{cursor:d}"
        yield changes(self._names, self.snapshot, made, self.context.stamp)

    def _altered(self) -> Iterable[Question]:
        if self.alteration is not None:
            table = self.structure.table_id
            yield from alter(self._names, self.alteration, table, self.snapshot, self.schema_version)

    # -- files --------------------------------------------------------------------------------------------------------

    def _data(self) -> Iterable[Question]:
        data = self.written.data
        if data is None:
            return
        file_id = self.state.snapshot.next_file_id
        row = 0 if self.state.stats is None else self.state.stats.next_row_id
        yield from data_file(self._names, file_id, self.structure.table_id, self.snapshot, row, data)

    def _deletes(self) -> Iterable[Question]:
        replaced = [each.replaces for each in self.written.deletes if each.replaces is not None]
        if replaced:
            yield from self._replaced(replaced)
        for start in range(0, len(self.written.ended), MOST_NAMED):
            yield self._ended(self.written.ended[start : start + MOST_NAMED])
        first = self.state.snapshot.next_file_id + (self.written.data is not None)
        rows = [
            (first + n, self.structure.table_id, each.begin, each.data_file_id, each.name, each.count, each.bytes,
             each.footer_bytes, each.through)
            for n, each in enumerate(self.written.deletes)
        ]  # fmt: skip
        if rows:
            yield self._question(
                "INSERT INTO {}ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
                " path_is_relative, format, delete_count, file_size_bytes, footer_size, partial_max) VALUES "
                + places_of(DELETE_FILE, len(rows)),
                values_of(rows),
            )

    def _replaced(self, replaced: Sequence[tuple[int, str]]) -> Iterable[Question]:
        """What a delete file held is in the next one: it goes from the catalog, and its owner's clean-up removes it."""
        values: dict[str, Value] = {f"id{n}": each for n, (each, _) in enumerate(replaced)}
        places = ", ".join(f":id{n:d}" for n in range(len(replaced)))
        yield self._question(f"DELETE FROM {{}}ducklake_delete_file WHERE delete_file_id IN ({places})", values)
        when = "now()" if self.context.dialect.binary_text else ":now"
        lines = places_of(SCHEDULED, len(replaced))
        scheduled = values_of(replaced) | (
            {} if self.context.dialect.binary_text else {"now": timestamptz(self.context.now)}
        )
        yield self._question(
            "INSERT INTO {}ducklake_files_scheduled_for_deletion (data_file_id, path, path_is_relative, schedule_start)"
            f" SELECT said.id, said.path, CAST(1 AS {{boolean}}), {when} FROM (VALUES {lines}) AS said (id, path)",
            scheduled,
        )

    def _ended(self, files: Sequence[int]) -> Question:
        values: dict[str, Value] = {f"id{n}": each for n, each in enumerate(files)}
        places = ", ".join(f":id{n:d}" for n in range(len(files)))
        return self._question(
            f"UPDATE {{}}ducklake_data_file SET end_snapshot = :new WHERE data_file_id IN ({places})"
            " AND end_snapshot IS NULL",
            {**values, "new": self.snapshot},
        )

    # -- statistics ---------------------------------------------------------------------------------------------------

    def _table_stats(self) -> Iterable[Question]:
        cursor = self.state.cursor_stats
        if cursor is not None:
            yield self._stats_of(self.structure.cursor_id, cursor.records + 1, cursor.next_row_id, cursor.bytes)
        data, old = self.written.data, self.state.stats
        if data is None:
            return
        if old is not None:
            yield self._stats_of(
                self.structure.table_id,
                old.records + data.records,
                old.next_row_id + data.records,
                old.bytes + data.bytes,
            )
            return
        yield new_table_stats(self._names, self.structure.table_id, data.records, data.bytes)

    def _stats_of(self, table: int, records: int, row: int, size: int) -> Question:
        return self._question(
            "UPDATE {}ducklake_table_stats SET record_count = :records, next_row_id = :row, file_size_bytes = :bytes"
            " WHERE table_id = :table",
            {"table": table, "records": records, "row": row, "bytes": size},
        )

    def _column_stats(self) -> Iterable[Question]:
        changed, new = dict[tuple[int, int], ColumnStats](), dict[tuple[int, int], ColumnStats]()
        for key, stats in (*self._of_data(), *self._of_cursor()):
            if key not in self.state.columns:
                new[key] = stats
            elif stats != self.state.columns[key]:
                changed[key] = stats
        if changed:
            lines = places_of(CHANGED_STATS, len(changed))
            yield self._question(
                "UPDATE {}ducklake_table_column_stats AS kept SET contains_null = said.has_null,"
                " contains_nan = said.has_nan, min_value = said.least, max_value = said.greatest"
                f" FROM (VALUES {lines}) AS said (table_id, column_id, has_null, has_nan, least, greatest)"
                " WHERE kept.table_id = said.table_id AND kept.column_id = said.column_id",
                values_of([stats_row(key, stats) for key, stats in changed.items()]),
            )
        if new:
            yield new_column_stats(self._names, new)
        for column in self.structure.widened:
            if (self.structure.table_id, column) in self.state.columns:
                yield self._question(
                    "DELETE FROM {}ducklake_table_column_stats WHERE table_id = :table AND column_id = :column",
                    {"table": self.structure.table_id, "column": column},
                )

    def _of_data(self) -> Iterable[tuple[tuple[int, int], ColumnStats]]:
        data = self.written.data
        if data is None:
            return
        was_empty = self.state.stats is None or not self.state.stats.records
        for column in data.columns:
            if column.column_id in self.structure.widened:
                continue
            key = self.structure.table_id, column.column_id
            stats = merged(self.state.columns.get(key), column, was_empty=was_empty)
            if stats is not None:
                yield key, stats

    def _of_cursor(self) -> Iterable[tuple[tuple[int, int], ColumnStats]]:
        """A cursor's row is inlined, and the statistics of its table hold for it as for any other."""
        values = cursor_values(self.context.cursor)
        for field in self.structure.cursor_columns:
            key = self.structure.cursor_id, field.id
            value, old = values.get(field.name), self.state.columns.get(key)
            if old is None:
                continue
            text = None if value is None else str(value)
            column = FileColumn(field.id, field.type.lower(), 0, 1, int(value is None), text, text, None)
            stats = merged(old, column, was_empty=False)
            if stats is not None:
                yield key, ColumnStats(stats.contains_null, old.contains_nan, stats.least, stats.greatest, old.extra)

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def _cursor_rows(self) -> Iterable[Question]:
        row = self.seen_cursor
        yield self._question(
            "UPDATE {}{cursor_rows} SET end_snapshot = :new WHERE row_id = :row AND begin_snapshot = :begin"
            " AND end_snapshot IS NULL",
            {"new": self.snapshot, "row": row.row_id, "begin": row.begin_snapshot},
        )
        yield cursor_row(self._names, self.context.dialect, row.row_id, self.snapshot, self.context.cursor)
