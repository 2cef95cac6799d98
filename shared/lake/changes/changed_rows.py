"""The rows of changed files, in the columns that are asked for: relations for DuckDB, with the values to bind."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from shared.contracts.errors import Error
from shared.contracts.ranges import Range
from shared.lake.catalog.field_ids import SNAPSHOT_COLUMN
from shared.lake.catalog.reader import CatalogReader, TableInfo
from shared.lake.changes.changed_files import (
    ChangedFiles,
    ChangedFilesReader,
    DeletedPlaces,
    InlinedColumn,
    InlinedRow,
)
from shared.lake.columns.history import Field, fields_at
from shared.lake.pruning import TEXT
from shared.lake.sql import ident

READ = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(\d+, ?\d+\)|DATE|UUID|VARCHAR|TIMESTAMP( WITH TIME ZONE)?"
)
"""Types of columns that are read from files as DuckLake reads them."""

INLINED = re.compile(r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT|VARCHAR")
"""Types of which a catalog keeps inlined values as they are, texts as their bytes."""


FILE, ROW_NUMBER = "_viaduck_file", "file_row_number"
"""Columns that a scan of files has beside theirs."""


@dataclass(frozen=True)
class Relation:
    """What can stand behind FROM, and the values of its places."""

    scan: str
    values: tuple[Any, ...] = ()


def _readable(table: TableInfo, names: Sequence[str], at: int) -> tuple[Field, ...] | None:
    """The columns of those names at a snapshot; None where files alone don't tell them as DuckLake shows them.

    Every file has a column by its name that the table has had since its first one, of one type and under no other name,
    and no other column had that name. Files of other programs need not have field ids.
    """
    there = {field.name.lower(): field for field in fields_at(table.versions, at)}
    known = [each for each in table.versions if each.parent is None]
    if ROW_NUMBER in {each.name.lower() for each in known}:
        return None
    found = list[Field]()
    for name in names:
        field = there.get(name.lower())
        if field is None or not READ.fullmatch(field.declared) or field.default is not None:
            return None
        mine = [each for each in known if each.id == field.id or each.name.lower() == field.name.lower()]
        if len({(each.id, each.name.lower(), each.type) for each in mine}) > 1:
            return None
        if min(each.begin for each in mine) > table.begin_snapshot:
            return None
        found.append(field)
    return tuple(found)


def _inlined(fields: Sequence[Field]) -> list[InlinedColumn] | None:
    """The columns in the catalog's own tables of inlined rows; None where these spell values in another way."""
    plain = all(INLINED.fullmatch(field.declared) for field in fields)
    return [InlinedColumn(field.name, field.declared == TEXT) for field in fields] if plain else None


@dataclass(frozen=True)
class ChangedRows:
    """What a range inserted and deleted, in columns that were asked for, as of the ``newest`` snapshot."""

    inserted: Relation
    deleted: Relation
    newest: int


INSERTIONS, DELETIONS = "ducklake_table_insertions(?, ?, ?, ?, ?)", "ducklake_table_deletions(?, ?, ?, ?, ?)"


def by_functions(alias: str, called: tuple[str, str], first: int, last: int) -> ChangedRows:
    """The same by DuckLake's own functions, in all columns, of a table that is ``called`` so at the range's end. They
    see the snapshot that their transaction does."""
    arguments = alias, *called, first, last
    return ChangedRows(Relation(INSERTIONS, arguments), Relation(DELETIONS, arguments), last)


UNLIKE = duckdb.BinderException, duckdb.ConversionException, duckdb.InternalException, duckdb.InvalidInputException
"""What a scan raises where a file is not as DuckLake writes them: a column is missing, or of no type of the table's."""


class UnlikeFiles(Error):
    """A table has a file that is not as files of DuckLake are. Its functions tell the table's changes from now on, once
    the lake is attached again."""


class RowsByFiles:
    """Tells what a range of snapshots changed in tables of one lake. Several threads may ask."""

    def __init__(
        self, catalog: CatalogReader, data_path: str | None, inlined: Collection[str], unlike: set[str]
    ) -> None:
        """``data_path``: where the lake's files are, if the catalog is not to be asked; ``inlined``: the catalog's own
        tables of inlined rows, as they are known. ``unlike`` outlives this: UUIDs of tables that have a file which only
        DuckLake can read."""
        self._files = ChangedFilesReader(catalog, data_path, inlined)
        self._unlike = unlike

    def changed(self, table: TableInfo, names: Sequence[str], snapshots: Range) -> ChangedRows | None:
        """The relations of a range as of its end, where the columns have these ``names``; None where only DuckLake's
        functions tell them. Raises a ``ViaduckError``."""
        fields = None if table.table_uuid in self._unlike else _readable(table, names, snapshots.through)
        if fields is None:
            return None
        files = self._files.changed(table.table_id, snapshots, _inlined(fields))
        if files is None:
            return None
        return ChangedRows(_inserted(files, fields), _deleted(files, fields), files.newest)

    def is_unlike(self, table: TableInfo, error: BaseException) -> bool:
        """Whether a scan of the table's files failed since there is such a file; it is not tried again then."""
        found = isinstance(error, UNLIKE)
        if found:
            self._unlike.add(table.table_uuid)
        return found


def _inserted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
    """The rows that the range inserted."""
    whole = [file.path for file in files.begun if not file.several]
    several = [file.path for file in files.begun if file.several]
    parts = list[Relation]()
    if whole:
        parts.append(Relation(f"SELECT {_named(fields)} FROM {_FILES} r", (whole,)))
    if several:
        came = f"r.{ident(SNAPSHOT_COLUMN)}"
        text = f"SELECT {_named(fields)} FROM {_FILES} r WHERE {came} IS NULL OR {came} BETWEEN ? AND ?"
        parts.append(Relation(text, (several, files.first, files.last)))
    parts += _held([row for row in files.rows if files.first <= row.begin <= files.last], fields)
    return _union(parts, fields)


def _held(rows: Sequence[InlinedRow], fields: Sequence[Field]) -> list[Relation]:
    """The rows as one relation, bound as values; none for none."""
    if not rows:
        return []
    columns = {field.name: (field, [row.values[number] for row in rows]) for number, field in enumerate(fields)}
    texts = ", ".join(f"unnest(?::{field.declared}[]) AS {ident(name)}" for name, (field, _) in columns.items())
    return [Relation(f"SELECT {texts}", tuple(_spelled(field, values) for field, values in columns.values()))]


def _spelled(field: Field, values: Sequence[Any]) -> list[Any]:
    if field.declared != TEXT:
        return list(values)
    return [None if value is None else bytes.fromhex(value).decode() for value in values]


def _deleted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
    """The rows that the range deleted, each as it was."""
    parts, gone = list[Relation](), _gone(files.deletes)
    if files.deletes:
        text = (
            f"SELECT {_named(fields)} FROM {_FILES} r SEMI JOIN (FROM {gone.scan} WHERE s BETWEEN ? AND ?) g"
            f" ON r.{FILE} = g.f AND r.{ROW_NUMBER} = g.p"
        )
        losing = [each.data for each in files.deletes]
        parts.append(Relation(text, (losing, *gone.values, files.first, files.last)))
    if files.places:
        paths, places = [path for path, _ in files.places], [place for _, place in files.places]
        text = (
            f"SELECT {_named(fields)} FROM {_FILES} r SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS f,"
            f" unnest(?::BIGINT[]) AS p) g ON r.{FILE} = g.f AND r.{ROW_NUMBER} = g.p"
        )
        parts.append(Relation(text, (sorted(set(paths)), paths, places)))
    parts += _held([row for row in files.rows if row.end is not None and files.first <= row.end <= files.last], fields)
    if files.ended:
        text = f"SELECT {_named(fields)} FROM {_FILES} r"
        if files.deletes:
            text += f" ANTI JOIN {gone.scan} g ON r.{FILE} = g.f AND r.{ROW_NUMBER} = g.p"
        parts.append(Relation(text, (list(files.ended), *(gone.values if files.deletes else ()))))
    return _union(parts, fields)


def _gone(deletes: Sequence[DeletedPlaces]) -> Relation:
    """Places of rows in their files, by the names of delete files, and when they went."""
    paths, data = [each.path for each in deletes], [each.data for each in deletes]
    return Relation(_GONE, (paths, paths, data, [each.begin for each in deletes]))


_FILES = f"read_parquet(?, hive_partitioning = false, filename = '{FILE}', {ROW_NUMBER} = true)"
"""Data files, which are bound, in the columns of the first one: it is an error that another lacks one of them. A path
may look as if it held values."""

_DELETE_FILES = f"read_parquet(?, union_by_name = true, hive_partitioning = false, filename = '{FILE}')"
"""Not every delete file has a column that says when rows went; the others show NULL then, as for any that they lack."""

_GONE = (
    "(SELECT m.f, coalesce(d.pos, error('a place is missing')) AS p,"
    f" coalesce(d.{ident(SNAPSHOT_COLUMN)}, m.begun) AS s"
    f" FROM (SELECT NULL::BIGINT AS {ident(SNAPSHOT_COLUMN)} WHERE false UNION ALL BY NAME FROM {_DELETE_FILES}) d"
    " JOIN (SELECT unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS f, unnest(?::BIGINT[]) AS begun) m"
    f" ON d.{FILE} = m.name)"
)


def _named(fields: Sequence[Field]) -> str:
    return ", ".join(f"{_checked(field)} AS {ident(name)}" for name, field in {f.name: f for f in fields}.items())


def _checked(field: Field) -> str:
    """The column as files have it that have it in the table's own type. A scan takes its types from the first file."""
    column = f"r.{ident(field.name)}"
    return f"CASE WHEN typeof({column}) = '{field.declared}' THEN {column} ELSE error('another type') END"


def _union(parts: Sequence[Relation], fields: Sequence[Field]) -> Relation:
    if not parts:
        nothing = ", ".join(
            f"CAST(NULL AS {f.declared}) AS {ident(f.name)}" for f in {f.name: f for f in fields}.values()
        )
        return Relation(f"(SELECT {nothing} WHERE false)")
    text = " UNION ALL ".join(part.scan for part in parts)
    return Relation(f"({text})", tuple(value for part in parts for value in part.values))
