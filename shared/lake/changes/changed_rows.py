"""The rows of changed files, in the columns that are asked for: relations for DuckDB, with the values to bind."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from shared.contracts.ranges import Range
from shared.lake.catalog.field_ids import POSITION_ID, SNAPSHOT_ID
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
from shared.lake.sql import ident, literal

READ = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(\d+, ?\d+\)|DATE|UUID|VARCHAR|TIMESTAMP( WITH TIME ZONE)?"
)
"""Types of columns that are read by their field ids as DuckLake reads them."""


INLINED = re.compile(r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT|VARCHAR")
"""Types of which a catalog keeps inlined values as they are, texts as their bytes."""


@dataclass(frozen=True)
class Relation:
    """What can stand behind FROM, and the values of its places."""

    scan: str
    values: tuple[Any, ...] = ()


def _readable(table: TableInfo, names: Sequence[str], at: int) -> tuple[Field, ...] | None:
    """The columns of those names at a snapshot; None where files alone don't tell them as DuckLake shows them: a column
    that came later has a default for older rows, and a widened column is of another type in older files."""
    there = {field.name.lower(): field for field in fields_at(table.versions, at)}
    found = [there.get(name.lower()) for name in names]
    fields = tuple(field for field in found if field is not None)
    if len(fields) < len(names):
        return None
    types = {field.id: {each.type for each in table.versions if each.id == field.id} for field in fields}
    plain = all(READ.fullmatch(f.declared) and f.default is None and len(types[f.id]) == 1 for f in fields)
    return fields if plain else None


def _inlined(table: TableInfo, fields: Sequence[Field]) -> list[InlinedColumn] | None:
    """The columns in the catalog's own tables of inlined rows, one for each version of the table's columns; None where
    these may have other names there, or lack one, or spell its values in another way."""
    for field in fields:
        known = [each for each in table.versions if each.parent is None]
        mine = [each for each in known if each.id == field.id]
        names = {each.name.lower() for each in mine} | {each.name.lower() for each in known if each.name == field.name}
        others = any(each.id != field.id and each.name.lower() == field.name.lower() for each in known)
        if not INLINED.fullmatch(field.declared) or others or len(names) > 1:
            return None
        if min(each.begin for each in mine) > table.begin_snapshot:
            return None
    return [InlinedColumn(field.name, field.declared == TEXT) for field in fields]


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


class RowsByFiles:
    """Tells what a range of snapshots changed in tables of one lake. Several threads may ask."""

    def __init__(self, catalog: CatalogReader, data_path: str | None, inlined: Collection[str]) -> None:
        """``data_path``: where the lake's files are, if the catalog is not to be asked; ``inlined``: the catalog's own
        tables of inlined rows, as they are known."""
        self._files = ChangedFilesReader(catalog, data_path, inlined)

    def changed(self, table: TableInfo, names: Sequence[str], snapshots: Range) -> ChangedRows | None:
        """The relations of a range as of its end, where the columns have these ``names``; None where only DuckLake's
        functions tell them. Raises a ``ViaduckError``."""
        fields = _readable(table, names, snapshots.through)
        if fields is None:
            return None
        files = self._files.changed(table.table_id, snapshots, _inlined(table, fields))
        if files is None:
            return None
        return ChangedRows(_inserted(files, fields), _deleted(files, fields), files.newest)


def _inserted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
    """The rows that the range inserted."""
    whole = [file.path for file in files.begun if not file.several]
    several = [file.path for file in files.begun if file.several]
    parts = list[Relation]()
    if whole:
        parts.append(Relation(f"SELECT {_named(fields)} FROM {_data(fields)} r", (whole,)))
    if several:
        text = f"SELECT {_named(fields)} FROM {_data(fields)} r WHERE r.s IS NULL OR r.s BETWEEN ? AND ?"
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
            f"SELECT {_named(fields)} FROM {_data(fields)} r SEMI JOIN (FROM {gone.scan} WHERE s BETWEEN ? AND ?) g"
            " ON r.filename = g.f AND r.file_row_number = g.p"
        )
        losing = [each.data for each in files.deletes]
        parts.append(Relation(text, (losing, *gone.values, files.first, files.last)))
    if files.places:
        paths, places = [path for path, _ in files.places], [place for _, place in files.places]
        text = (
            f"SELECT {_named(fields)} FROM {_data(fields)} r SEMI JOIN (SELECT unnest(?::VARCHAR[]) AS f,"
            " unnest(?::BIGINT[]) AS p) g ON r.filename = g.f AND r.file_row_number = g.p"
        )
        parts.append(Relation(text, (sorted(set(paths)), paths, places)))
    parts += _held([row for row in files.rows if row.end is not None and files.first <= row.end <= files.last], fields)
    if files.ended:
        text = f"SELECT {_named(fields)} FROM {_data(fields)} r"
        if files.deletes:
            text += f" ANTI JOIN {gone.scan} g ON r.filename = g.f AND r.file_row_number = g.p"
        parts.append(Relation(text, (list(files.ended), *(gone.values if files.deletes else ()))))
    return _union(parts, fields)


def _gone(deletes: Sequence[DeletedPlaces]) -> Relation:
    """Places of rows in their files, by the names of delete files, and when they went."""
    paths, data = [each.path for each in deletes], [each.data for each in deletes]
    return Relation(_GONE, (paths, paths, data, [each.begin for each in deletes]))


_GONE = (
    "(SELECT m.f, d.p, coalesce(d.s, m.begun) AS s FROM read_parquet(?, schema = MAP {"
    f"{POSITION_ID:d}: {{'name': 'p', 'type': 'BIGINT', 'default_value': NULL}},"
    f" {SNAPSHOT_ID:d}: {{'name': 's', 'type': 'BIGINT', 'default_value': NULL}}"
    "}, hive_partitioning = false, filename = true) d"
    " JOIN (SELECT unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS f, unnest(?::BIGINT[]) AS begun) m"
    " ON d.filename = m.name)"
)


def _data(fields: Sequence[Field]) -> str:
    """Data files, which are bound, by field ids: names change, and a path may look as if it held values."""
    ids = {field.id: field.declared for field in fields}
    columns = "".join(
        f"{number:d}: {{'name': 'c{number:d}', 'type': {literal(declared)}, 'default_value': NULL}}, "
        for number, declared in ids.items()
    )
    return (
        f"read_parquet(?, schema = MAP {{{columns}{SNAPSHOT_ID:d}: {{'name': 's', 'type': 'BIGINT', 'default_value':"
        " NULL}}, hive_partitioning = false, filename = true, file_row_number = true)"
    )


def _named(fields: Sequence[Field]) -> str:
    return ", ".join(f"r.c{field.id:d} AS {ident(name)}" for name, field in {f.name: f for f in fields}.items())


def _union(parts: Sequence[Relation], fields: Sequence[Field]) -> Relation:
    if not parts:
        nothing = ", ".join(
            f"CAST(NULL AS {f.declared}) AS {ident(f.name)}" for f in {f.name: f for f in fields}.values()
        )
        return Relation(f"(SELECT {nothing} WHERE false)")
    text = " UNION ALL ".join(part.scan for part in parts)
    return Relation(f"({text})", tuple(value for part in parts for value in part.values))
