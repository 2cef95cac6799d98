"""The look: one statement tells all that a commit rests on, as of the newest snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.lake.connection.dialect import Dialect
from shared.lake.connection.query import Question, Value
from shared.lake.direct.structure import Structure
from shared.lake.sql import ident

CURSOR_TYPES = {
    "pipeline": "varchar",
    "destination": "varchar",
    "generation": "int64",
    "position": "int64",
    "source_lake": "varchar",
    "source_table_id": "int64",
    "source_table_uuid": "varchar",
    "routing_value": "varchar",
    "item": "varchar",
    "rows_applied": "int64",
    "updated_at": "timestamptz",
}
"""A cursor table's columns, in their order, with DuckLake's types."""

CURSOR_COLUMNS = tuple(CURSOR_TYPES)

SPELLING = "source_position"
"""The column more that a cursor has whose source spells its positions, with the position's spelling."""

SPELLED_CURSOR_COLUMNS = (*CURSOR_COLUMNS, SPELLING)

CURSOR_TEXTS = frozenset(name for name, kind in CURSOR_TYPES.items() if kind == "varchar") | {SPELLING}
"""Cursor columns whose inlined texts a Postgres catalog keeps as bytes."""


@dataclass(frozen=True)
class NewestSnapshot:
    """The newest snapshot, and the numbers that its successor goes on from."""

    id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int


class Option(NamedTuple):
    """A line of ``ducklake_metadata``; without ``scope`` it is the whole lake's."""

    key: str
    value: str
    scope: str | None


@dataclass(frozen=True)
class CursorRow:
    """A live inlined row of the cursor's table. ``values`` are by ``cursor_columns``."""

    row_id: int
    begin_snapshot: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class DeleteFile:
    """A live delete file, and since which snapshot it is there. One of several snapshots says of each row when it went
    (``through``: the last of them)."""

    id: int
    path: str
    format: str
    count: int
    begin: int
    through: int | None


@dataclass(frozen=True)
class DataFile:
    """A live data file. ``bounds`` are the least and the greatest value of each asked column, as text."""

    id: int
    path: str
    records: int
    bytes: int
    plain: bool
    """Neither encrypted, nor partitioned, nor read by a mapping of names."""
    deletes: tuple[DeleteFile, ...]
    bounds: tuple[tuple[str | None, str | None], ...]

    @property
    def dead(self) -> int:
        return sum(each.count for each in self.deletes)


class TableStats(NamedTuple):
    """What the catalog keeps of all rows that a table ever had, in how many bytes of files."""

    records: int
    next_row_id: int
    bytes: int


@dataclass(frozen=True)
class ColumnStats:
    """What the catalog keeps of all values that a column ever had; None where it is not known."""

    contains_null: bool | None
    contains_nan: bool | None
    least: str | None
    greatest: str | None
    extra: str | None = None


@dataclass(frozen=True)
class TableState:
    """A destination's table and cursor as of the newest snapshot."""

    snapshot: NewestSnapshot
    options: tuple[Option, ...]
    cursors: tuple[CursorRow, ...]
    cursor_rows_in_files: int
    inlined_rows: bool
    inlined_deletes: bool
    catalog_tables: frozenset[str]
    """The catalog's own tables of inlined rows and deletes of the two, as they are now."""
    files: tuple[DataFile, ...]
    stats: TableStats | None
    cursor_stats: TableStats | None
    columns: Mapping[tuple[int, int], ColumnStats]
    """By ids of table and column."""
    fields: frozenset[tuple[int, str, str, int]]
    """The table's columns, as ``Structure.columns``."""
    partitioned: bool
    sorted: bool
    last_column: int
    """The highest id that the table ever gave a column or a field."""


def cursor_columns(structure: Structure) -> tuple[str, ...]:
    """The columns of a cursor's table in their order: names of ours, whatever the catalog calls them."""
    has_spelling = any(field.name == SPELLING for field in structure.cursor_columns)
    return SPELLED_CURSOR_COLUMNS if has_spelling else CURSOR_COLUMNS


def lake_option(options: Sequence[Option], key: str) -> str | None:
    """The lake's own value of an option, which is none of a schema's or a table's."""
    return next((option.value for option in options if option.key == key and option.scope is None), None)


def state_question(dialect: Dialect, prefix: str, structure: Structure, keys: Sequence[int]) -> Question:
    """The statement that looks at a table of that structure; ``keys`` are ids of the columns whose bounds are asked."""
    names = {"": prefix, **dialect.functions, "cursor_rows": ident(structure.cursor_inlined[0])}
    values: dict[str, Value] = {"table": structure.table_id, "cursor": structure.cursor_id}
    for number, key in enumerate(keys):
        values[f"k{number}"] = key
    deletes, cursor_deletes = structure.inlined_deletes, structure.cursor_inlined_deletes
    names |= {f"inlined{number}": ident(name) for number, name in enumerate(structure.inlined)}
    names |= {"deletes": ident(deletes), "cursor_deletes": ident(cursor_deletes)}
    parts = [
        _SNAPSHOT,
        _OPTIONS,
        _INLINED_THERE_POSTGRES if dialect.binary_text else _INLINED_THERE_SQLITE,
        _cursor_rows(structure),
        _cursor_rows_in_files(with_deletes=cursor_deletes in structure.optional),
        _inlined_rows(len(structure.inlined)),
        _INLINED_DELETES if deletes in structure.optional else "SELECT 0",
        _files(len(keys)),
        _DELETE_FILES,
        _TABLE_STATS,
        _COLUMN_STATS,
        _COLUMNS,
        _LAYOUT,
    ]
    if dialect.binary_text:
        values |= {"deletes_name": prefix + deletes, "cursor_deletes_name": prefix + cursor_deletes}
    else:
        values |= {"deletes_name": deletes, "cursor_deletes_name": cursor_deletes}
    return Question(f"SELECT {{array}}({', '.join(f'({part})' for part in parts)}) AS found", names, values)


_SNAPSHOT = (
    "SELECT {array}(snapshot_id, schema_version, next_catalog_id, next_file_id) FROM {}ducklake_snapshot"
    " ORDER BY snapshot_id DESC LIMIT 1"
)

_OPTIONS = (
    "SELECT {collect}({array}(key, value, scope)) FROM {}ducklake_metadata WHERE scope IS NULL OR scope = 'schema'"
    " OR scope_id = :table"
)

_INLINED_THERE_POSTGRES = (
    "SELECT {array}((SELECT {collect}(table_name) FROM {}ducklake_inlined_data_tables"
    "   WHERE table_id = :table OR table_id = :cursor),"
    " to_regclass(:deletes_name) IS NOT NULL, to_regclass(:cursor_deletes_name) IS NOT NULL)"
)
_INLINED_THERE_SQLITE = (
    "SELECT {array}((SELECT {collect}(table_name) FROM {}ducklake_inlined_data_tables"
    "   WHERE table_id = :table OR table_id = :cursor),"
    " (SELECT count(*) FROM sqlite_master WHERE name = :deletes_name),"
    " (SELECT count(*) FROM sqlite_master WHERE name = :cursor_deletes_name))"
)

_INLINED_DELETES = (
    "SELECT count(*) FROM {}{deletes} i JOIN {}ducklake_data_file f ON f.data_file_id = i.file_id"
    " WHERE f.end_snapshot IS NULL"
)

_DELETE_FILES = (
    "SELECT {collect}({array}(d.data_file_id, d.delete_file_id, d.path, d.format, d.delete_count,"
    " d.begin_snapshot, d.partial_max, d.encryption_key)) FROM {}ducklake_delete_file d"
    " WHERE d.table_id = :table AND d.end_snapshot IS NULL"
)

_TABLE_STATS = (
    "SELECT {collect}({array}(table_id, record_count, next_row_id, file_size_bytes)) FROM {}ducklake_table_stats"
    " WHERE table_id = :table OR table_id = :cursor"
)

_COLUMN_STATS = (
    "SELECT {collect}({array}(table_id, column_id, contains_null, contains_nan, min_value, max_value, extra_stats))"
    " FROM {}ducklake_table_column_stats WHERE table_id = :table OR table_id = :cursor"
)


_COLUMNS = (
    "SELECT {collect}({array}(column_id, column_name, column_type, begin_snapshot)) FROM {}ducklake_column"
    " WHERE table_id = :table AND end_snapshot IS NULL"
)

_LAYOUT = (
    "SELECT {array}((SELECT count(*) FROM {}ducklake_partition_info WHERE table_id = :table AND end_snapshot IS NULL),"
    " (SELECT count(*) FROM {}ducklake_sort_info WHERE table_id = :table AND end_snapshot IS NULL),"
    " (SELECT max(column_id) FROM {}ducklake_column WHERE table_id = :table))"
)


def _cursor_rows(structure: Structure) -> str:
    columns = ", ".join(cursor_columns(structure))
    return (
        f"SELECT {{collect}}({{array}}(row_id, begin_snapshot, {columns})) FROM {{}}{{cursor_rows}}"
        " WHERE end_snapshot IS NULL"
    )


def _cursor_rows_in_files(*, with_deletes: bool) -> str:
    """Rows of the cursor's table that are in files and live: an owner's flush has brought them there."""
    inlined = (
        " - (SELECT count(*) FROM {}{cursor_deletes} i JOIN {}ducklake_data_file f ON f.data_file_id = i.file_id"
        " WHERE f.end_snapshot IS NULL)"
    )
    return (
        "SELECT coalesce((SELECT sum(record_count) FROM {}ducklake_data_file WHERE table_id = :cursor"
        "   AND end_snapshot IS NULL), 0)"
        " - coalesce((SELECT sum(d.delete_count) FROM {}ducklake_delete_file d JOIN {}ducklake_data_file f"
        "   ON f.data_file_id = d.data_file_id WHERE d.table_id = :cursor AND d.end_snapshot IS NULL"
        "   AND f.end_snapshot IS NULL), 0)" + (inlined if with_deletes else "")
    )


def _inlined_rows(tables: int) -> str:
    each = (f"(SELECT count(*) FROM {{}}{{inlined{number:d}}} WHERE end_snapshot IS NULL)" for number in range(tables))
    return "SELECT " + (" + ".join(each) or "0")


def _files(keys: int) -> str:
    bounds = "".join(f", b{number:d}.min_value, b{number:d}.max_value" for number in range(keys))
    joins = "".join(
        f" LEFT JOIN {{}}ducklake_file_column_stats b{number:d} ON b{number:d}.data_file_id = f.data_file_id"
        f" AND b{number:d}.table_id = :table AND b{number:d}.column_id = :k{number:d}"
        for number in range(keys)
    )
    return (
        "SELECT {collect}({array}(f.data_file_id, f.path, f.record_count, f.encryption_key,"
        f" f.partition_id, f.mapping_id, f.file_format, f.file_size_bytes{bounds}))"
        f" FROM {{}}ducklake_data_file f{joins}"
        " WHERE f.table_id = :table AND f.end_snapshot IS NULL"
    )


def parse_state(text: str, dialect: Dialect, structure: Structure) -> TableState:
    """What the look's answer says. Raises ``ValueError`` and its kind for a catalog that DuckLake did not write."""
    found = json.loads(text)
    snapshot, options, inlined, cursors, in_files, rows, deletes, *of_table = found
    files, delete_files, tables, kept, fields, layout = of_table
    stats = {row[0]: TableStats(int(row[1]), int(row[2]), int(row[3])) for row in tables or ()}
    optional = (structure.inlined_deletes, bool(inlined[1])), (structure.cursor_inlined_deletes, bool(inlined[2]))
    return TableState(
        snapshot=NewestSnapshot(*(int(number) for number in snapshot)),
        options=tuple(Option(*row) for row in options or ()),
        cursors=tuple(_cursor(row, dialect, structure) for row in cursors or ()),
        cursor_rows_in_files=int(in_files),
        inlined_rows=int(rows) > 0,
        inlined_deletes=int(deletes) > 0,
        catalog_tables=frozenset(inlined[0] or ()) | {name for name, there in optional if there},
        files=_data_files(files or (), delete_files or ()),
        stats=stats.get(structure.table_id),
        cursor_stats=stats.get(structure.cursor_id),
        columns={
            (int(row[0]), int(row[1])): ColumnStats(_flag(row[2]), _flag(row[3]), row[4], row[5], row[6])
            for row in kept or ()
        },
        fields=frozenset((int(row[0]), row[1], row[2], int(row[3])) for row in fields or ()),
        partitioned=int(layout[0]) > 0,
        sorted=int(layout[1]) > 0,
        last_column=int(layout[2]),
    )


def _cursor(row: Sequence[Any], dialect: Dialect, structure: Structure) -> CursorRow:
    values = {
        name: dialect.text_out(value) if name in CURSOR_TEXTS else value
        for name, value in zip(cursor_columns(structure), row[2:], strict=True)
    }
    return CursorRow(int(row[0]), int(row[1]), values)


def _data_files(files: Sequence[Sequence[Any]], deletes: Sequence[Sequence[Any]]) -> tuple[DataFile, ...]:
    of: dict[int, list[DeleteFile]] = {}
    locked = set[int]()
    if not all(isinstance(row[1], str) for row in files) or not all(isinstance(row[2], str) for row in deletes):
        raise ValueError("a path is no text")
    for data_id, delete_id, path, kind, count, begin, through, key in deletes:
        known = DeleteFile(int(delete_id), path, kind, int(count), int(begin), through)
        of.setdefault(int(data_id), []).append(known)
        if key is not None:
            locked.add(int(data_id))
    return tuple(
        DataFile(
            id=int(row[0]),
            path=row[1],
            records=int(row[2]),
            bytes=int(row[7]),
            plain=row[3] is row[4] is row[5] is None and row[6] == "parquet" and int(row[0]) not in locked,
            deletes=tuple(of.get(int(row[0]), ())),
            bounds=tuple((row[i], row[i + 1]) for i in range(8, len(row), 2)),
        )
        for row in files
    )


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
