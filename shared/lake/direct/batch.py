"""A commit as the rows that each metadata table gets: values of the look and of the files that were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.lake.catalog_query import Question, Value
from shared.lake.direct.dialect import Dialect, timestamptz
from shared.lake.direct.state import CURSOR_COLUMNS, CURSOR_TEXTS, ColumnStats, CursorRow, State
from shared.lake.direct.statistics import FileColumn, merged
from shared.lake.direct.structure import Structure
from shared.lake.sql import ident

PLAIN, FLAG = "{}", "CAST(CAST({} AS INTEGER) AS {{boolean}})"
"""How a value stands in a row of VALUES; flags are numbers until the catalog's own type for them is reached."""

FILE_STATS = (PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, FLAG)
DELETE_FILE = (PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, "CAST(1 AS {{boolean}}), 'parquet', {}", PLAIN, PLAIN, PLAIN)
SCHEDULED = ("CAST({} AS BIGINT)", "CAST({} AS VARCHAR)")
NEW_STATS = (PLAIN, PLAIN, FLAG, FLAG, PLAIN, PLAIN)
CHANGED_STATS = ("CAST({} AS BIGINT)", "CAST({} AS BIGINT)", FLAG, FLAG, "CAST({} AS VARCHAR)", "CAST({} AS VARCHAR)")


@dataclass(frozen=True)
class NewDataFile:
    """A data file that was written; ``name`` is relative to the table's folder."""

    name: str
    records: int
    bytes: int
    footer_bytes: int
    columns: tuple[FileColumn, ...]


@dataclass(frozen=True)
class NewDeleteFile:
    """A file of positions that was written for a data file.

    Where one was there already, the new one takes its place for all the snapshots since its ``begin``, and says of
    each position when it went, up to ``through``: as the extension writes them, which takes a file that does not tell
    for one of a single snapshot. ``replaces`` is what it replaces, with its path below the data path.
    """

    name: str
    data_file_id: int
    count: int
    bytes: int
    footer_bytes: int
    begin: int
    through: int | None = None
    replaces: tuple[int, str] | None = None


@dataclass(frozen=True)
class Written:
    """What an apply leaves in the store before it commits. ``ended``: data files that have lost all their rows."""

    data: NewDataFile | None = None
    deletes: tuple[NewDeleteFile, ...] = ()
    ended: tuple[int, ...] = ()
    deleted_rows: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (*(() if self.data is None else (self.data.name,)), *(each.name for each in self.deletes))


@dataclass(frozen=True)
class Stamp:
    author: str
    message: str
    extra_info: str


@dataclass(frozen=True)
class Commit:
    """A batch, in its order: ``claim`` takes the snapshot's number, ``condition`` tells (as ``held``) whether all is as
    it was looked at, and only then comes the ``rest``.

    The condition has to be read under a newer view than the claim: under an older one a rival may have committed that
    number meanwhile and an owner have expired it, so that the claim succeeds below the newest snapshot.
    """

    snapshot: int
    claim: Question
    condition: Question
    rest: tuple[Question, ...]


def commit_of(
    dialect: Dialect,
    prefix: str,
    structure: Structure,
    state: State,
    written: Written,
    cursor: Mapping[str, Any],
    stamp: Stamp,
    now: datetime,
) -> Commit:
    """The batch that makes ``written`` and the new ``cursor`` (values by ``CURSOR_COLUMNS``) the next snapshot."""
    return _Batch(dialect, prefix, structure, state, written, cursor, stamp, now).commit()


@dataclass(frozen=True)
class _Batch:
    dialect: Dialect
    prefix: str
    structure: Structure
    state: State
    written: Written
    cursor: Mapping[str, Any]
    stamp: Stamp
    now: datetime

    def commit(self) -> Commit:
        rest = [*self._changes(), *self._data(), *self._deletes(), *self._table_stats(), *self._column_stats()]
        return Commit(self.snapshot, self._claim(), self._condition(), (*rest, *self._cursor_rows()))

    @property
    def snapshot(self) -> int:
        return self.state.snapshot.id + 1

    @property
    def seen_cursor(self) -> CursorRow:
        return self.state.cursors[0]

    def _question(self, sql: str, values: Mapping[str, Value]) -> Question:
        names = {"": self.prefix, **self.dialect.functions, "cursor_rows": ident(self.structure.cursor_inlined[0])}
        return Question(sql, names, values)

    # -- the snapshot -------------------------------------------------------------------------------------------------

    def _claim(self) -> Question:
        """The snapshot's number is its primary key, which decides between rivals. TLA: ``ClaimNumber``."""
        seen = self.state.snapshot
        when = "now()" if self.dialect.binary_text else ":now"
        values: dict[str, Value] = {
            "new": self.snapshot,
            "version": seen.schema_version,
            "catalog": seen.next_catalog_id,
            "file": seen.next_file_id + len(self.written.names),
        }
        if not self.dialect.binary_text:
            values["now"] = timestamptz(self.now)
        return self._question(
            "INSERT INTO {}ducklake_snapshot"
            " (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)"
            f" VALUES (:new, {when}, :version, :catalog, :file)",
            values,
        )

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
        """What others' conflict checks and the change feed go by."""
        table, cursor = self.structure.table_id, self.structure.cursor_id
        inserted = f"inserted_into_table:{table:d}," if self.written.data is not None else ""
        deleted = f"deleted_from_table:{table:d}," if self.written.deletes or self.written.ended else ""
        yield self._question(
            "INSERT INTO {}ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message,"
            " commit_extra_info) VALUES (:new, :changes, :author, :message, :extra)",
            {
                "new": self.snapshot,
                "changes": f"{inserted}{deleted}inlined_insert:{cursor:d},inlined_delete:{cursor:d}",
                "author": self.stamp.author,
                "message": self.stamp.message,
                "extra": self.stamp.extra_info,
            },
        )

    # -- files --------------------------------------------------------------------------------------------------------

    def _data(self) -> Iterable[Question]:
        data = self.written.data
        if data is None:
            return
        file_id = self.state.snapshot.next_file_id
        values: dict[str, Value] = {
            "id": file_id,
            "table": self.structure.table_id,
            "new": self.snapshot,
            "path": data.name,
            "records": data.records,
            "bytes": data.bytes,
            "footer": data.footer_bytes,
            "row": 0 if self.state.stats is None else self.state.stats.next_row_id,
        }
        yield self._question(
            "INSERT INTO {}ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,"
            " file_format, record_count, file_size_bytes, footer_size, row_id_start) VALUES (:id, :table, :new, :path,"
            " CAST(1 AS {boolean}), 'parquet', :records, :bytes, :footer, :row)",
            values,
        )
        rows = [
            (
                file_id,
                self.structure.table_id,
                c.column_id,
                c.bytes,
                c.values,
                c.nulls,
                c.least,
                c.greatest,
                _number(c.has_nan),
            )
            for c in data.columns
        ]
        if rows:
            yield self._question(
                "INSERT INTO {}ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,"
                " value_count, null_count, min_value, max_value, contains_nan) VALUES " + _rows(FILE_STATS, len(rows)),
                _values(rows),
            )

    def _deletes(self) -> Iterable[Question]:
        replaced = [each.replaces for each in self.written.deletes if each.replaces is not None]
        if replaced:
            yield from self._replaced(replaced)
        if self.written.ended:
            yield self._ended(self.written.ended)
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
                + _rows(DELETE_FILE, len(rows)),
                _values(rows),
            )

    def _replaced(self, replaced: Sequence[tuple[int, str]]) -> Iterable[Question]:
        """What a delete file held is in the next one: it goes from the catalog, and its owner's clean-up removes it."""
        values: dict[str, Value] = {f"id{n}": each for n, (each, _) in enumerate(replaced)}
        places = ", ".join(f":id{n:d}" for n in range(len(replaced)))
        yield self._question(f"DELETE FROM {{}}ducklake_delete_file WHERE delete_file_id IN ({places})", values)
        when = "now()" if self.dialect.binary_text else ":now"
        lines = _rows(SCHEDULED, len(replaced))
        scheduled = _values(replaced) | ({} if self.dialect.binary_text else {"now": timestamptz(self.now)})
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
        yield self._question(
            "INSERT INTO {}ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes)"
            " VALUES (:table, :records, :row, :bytes)",
            {"table": self.structure.table_id, "records": data.records, "row": data.records, "bytes": data.bytes},
        )

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
            lines = _rows(CHANGED_STATS, len(changed))
            yield self._question(
                "UPDATE {}ducklake_table_column_stats AS kept SET contains_null = said.has_null,"
                " contains_nan = said.has_nan, min_value = said.least, max_value = said.greatest"
                f" FROM (VALUES {lines}) AS said (table_id, column_id, has_null, has_nan, least, greatest)"
                " WHERE kept.table_id = said.table_id AND kept.column_id = said.column_id",
                _values([_row(key, stats) for key, stats in changed.items()]),
            )
        if new:
            yield self._question(
                "INSERT INTO {}ducklake_table_column_stats"
                " (table_id, column_id, contains_null, contains_nan, min_value, max_value) VALUES "
                + _rows(NEW_STATS, len(new)),
                _values([_row(key, stats) for key, stats in new.items()]),
            )

    def _of_data(self) -> Iterable[tuple[tuple[int, int], ColumnStats]]:
        data = self.written.data
        if data is None:
            return
        was_empty = self.state.stats is None or not self.state.stats.records
        for column in data.columns:
            key = self.structure.table_id, column.column_id
            stats = merged(self.state.columns.get(key), column, was_empty=was_empty)
            if stats is not None:
                yield key, stats

    def _of_cursor(self) -> Iterable[tuple[tuple[int, int], ColumnStats]]:
        """A cursor's row is inlined, and the statistics of its table hold for it as for any other."""
        values = self._cursor_values()
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

    def _cursor_values(self) -> dict[str, Value]:
        """The cursor as its inlined row keeps it."""
        return {
            name: timestamptz(value) if isinstance(value := self.cursor[name], datetime) else value
            for name in CURSOR_COLUMNS
        }

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def _cursor_rows(self) -> Iterable[Question]:
        row = self.seen_cursor
        yield self._question(
            "UPDATE {}{cursor_rows} SET end_snapshot = :new WHERE row_id = :row AND begin_snapshot = :begin"
            " AND end_snapshot IS NULL",
            {"new": self.snapshot, "row": row.row_id, "begin": row.begin_snapshot},
        )
        values: dict[str, Value] = {"row": row.row_id, "new": self.snapshot}
        for name, value in self._cursor_values().items():
            values[f"c_{name}"] = self.dialect.text_in(str(value)) if name in CURSOR_TEXTS else value
        columns = ", ".join(CURSOR_COLUMNS)
        places = ", ".join(f":c_{column}" for column in CURSOR_COLUMNS)
        yield self._question(
            f"INSERT INTO {{}}{{cursor_rows}} (row_id, begin_snapshot, {columns}) VALUES (:row, :new, {places})", values
        )


def _rows(shape: Sequence[str], count: int) -> str:
    """The rows of a VALUES list; ``_values`` names what goes into them."""
    lines = [[part.format(f":v{r:d}_{c:d}") for c, part in enumerate(shape)] for r in range(count)]
    return ", ".join(f"({', '.join(line)})" for line in lines)


def _values(rows: Sequence[Sequence[Value]]) -> dict[str, Value]:
    return {f"v{r}_{c}": value for r, row in enumerate(rows) for c, value in enumerate(row)}


def _number(flag: bool | None) -> int | None:
    return None if flag is None else int(flag)


def _row(key: tuple[int, int], stats: ColumnStats) -> tuple[Value, ...]:
    return (*key, _number(stats.contains_null), _number(stats.contains_nan), stats.least, stats.greatest)
