"""Which files hold the rows that a range of snapshots inserted and deleted: one statement on the catalog.

DuckLake's functions ask for the same in many, and open every file that ever lost a row, whatever the range (H9).
A range of which files of its own don't tell everything is left to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.contracts.ranges import Range
from shared.lake.catalog.paths import root
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.dialect import POSTGRES, SQLITE
from shared.lake.connection.query import Value
from shared.lake.sql import ident

MOST_INLINED = 1_000
"""Rows, and deletes, of a range that a catalog holds itself; more are left to DuckLake."""

MOST_FILES = 1_000
"""Of a range; more are left to DuckLake, which opens one after the other."""

KNOWN_VERSIONS = frozenset({"1.0"})
"""Of DuckLake's format: ``tests/lake/test_changed_rows.py`` holds what is read of them against its own functions."""

PATTERN = re.compile(r"[*?\[]")
"""What DuckDB takes for a pattern where it is given a file's path."""

_FILE = "f.data_file_id, f.path, f.path_is_relative, f.encryption_key, f.mapping_id, f.file_format"

_NEW = (
    "d.begin_snapshot <= :last AND (d.begin_snapshot >= :first OR d.partial_max >= :first"
    " OR d.delete_file_id >= (SELECT next_file_id FROM {}ducklake_snapshot WHERE snapshot_id = :after))"
)
"""A delete file of several snapshots begins with the first of them, and a flush does not say which is the last; but no
row went later than its file was written. Another program may number files otherwise."""

_PARTS = (
    "SELECT max(snapshot_id) FROM {}ducklake_snapshot",
    "SELECT count(*) FROM {}ducklake_snapshot WHERE snapshot_id = :after",
    "SELECT {collect}({array}(key, value)) FROM {}ducklake_metadata WHERE scope IS NULL"
    " AND key IN ('version', 'encrypted', 'data_path')",
    "SELECT {collect}({array}(t.path, t.path_is_relative, s.path, s.path_is_relative)) FROM {}ducklake_table t"
    " JOIN {}ducklake_schema s ON s.schema_id = t.schema_id WHERE t.table_id = :table",
    "SELECT {collect}(table_name) FROM {}ducklake_inlined_data_tables WHERE table_id = :table",
    f"SELECT {{collect}}({{array}}({_FILE}, f.partial_max)) FROM {{}}ducklake_data_file f"
    " WHERE f.table_id = :table AND f.begin_snapshot <= :last"
    " AND (f.begin_snapshot >= :first OR f.partial_max >= :first)",
    f"SELECT {{collect}}({{array}}({_FILE})) FROM {{}}ducklake_data_file f"
    " WHERE f.table_id = :table AND f.end_snapshot >= :first AND f.end_snapshot <= :last",
    f"SELECT {{collect}}({{array}}({_FILE}, d.path, d.path_is_relative, d.encryption_key, d.format, d.begin_snapshot,"
    " o.files)) FROM {}ducklake_delete_file d JOIN {}ducklake_data_file f ON f.data_file_id = d.data_file_id"
    " JOIN (SELECT data_file_id, count(*) AS files FROM {}ducklake_delete_file WHERE table_id = :table"
    "  GROUP BY data_file_id) o ON o.data_file_id = d.data_file_id"
    f" WHERE d.table_id = :table AND f.table_id = :table AND (({_NEW}) OR (f.end_snapshot >= :first"
    " AND f.end_snapshot <= :last))",
)

_DELETES_ON_POSTGRES = "SELECT to_regclass(:deletes) IS NOT NULL"
_DELETES_ON_SQLITE = "SELECT count(*) FROM sqlite_master WHERE name = :deletes"
_INLINED_ROWS = (
    "SELECT {{collect}}({{array}}(i.begin_snapshot, i.end_snapshot{columns}))"
    " FROM (SELECT * FROM {{}}{{inlined{number:d}}} WHERE (begin_snapshot >= :first AND begin_snapshot <= :last)"
    " OR (end_snapshot >= :first AND end_snapshot <= :last) LIMIT {most:d}) i"
)
_INLINED_DELETES = (
    f"SELECT {{collect}}({{array}}({_FILE}, i.row_id)) FROM (SELECT file_id, row_id FROM {{}}{{deletes}}"
    f" WHERE begin_snapshot >= :first AND begin_snapshot <= :last LIMIT {MOST_INLINED + 1:d}) i"
    " JOIN {}ducklake_data_file f ON f.data_file_id = i.file_id WHERE f.table_id = :table"
)
_ENDED_AFTER_INLINED = (
    "SELECT count(*) FROM {}{deletes} i JOIN {}ducklake_data_file f ON f.data_file_id = i.file_id"
    " WHERE f.table_id = :table AND f.end_snapshot >= :first AND f.end_snapshot <= :last"
)
_TEXT_ON_POSTGRES = "encode(i.{{c{number:d}}}, 'hex')"
_TEXT_ON_SQLITE = "CASE WHEN i.{{c{number:d}}} IS NOT NULL THEN hex(CAST(i.{{c{number:d}}} AS BLOB)) END"
"""A NUL would end a text in JSON; SQLite's ``hex`` of NULL is empty."""


@dataclass(frozen=True)
class InsertedFile:
    """A file with rows that the range inserted. Of one of ``several`` snapshots each row says when it came."""

    path: str
    several: bool


@dataclass(frozen=True)
class DeletedPlaces:
    """A delete file, its data file, and the snapshot at which its rows went that say no other."""

    path: str
    data: str
    begin: int


@dataclass(frozen=True)
class InlinedRow:
    """A row that the catalog holds itself, in the columns that were asked for; texts are in hexadecimal."""

    begin: int
    end: int | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class InlinedColumn:
    """A column of the catalog's own tables of inlined rows."""

    name: str
    is_text: bool


@dataclass(frozen=True)
class ChangedFiles:
    """The files of a range from ``first`` to ``last``, as of the ``newest`` snapshot: those that it began and
    ``ended``, and delete files that were written in it, or after, or of files that it ended."""

    first: int
    last: int
    newest: int
    begun: tuple[InsertedFile, ...]
    ended: tuple[str, ...]
    deletes: tuple[DeletedPlaces, ...]
    rows: tuple[InlinedRow, ...] = ()
    """Rows of the catalog's own that the range inserted or deleted."""
    places: tuple[tuple[str, int], ...] = ()
    """Of rows that the range deleted in files by a note in the catalog."""


class ChangedFilesReader:
    """Asks one lake's catalog. For one thread at a time: what it knows of the catalog's own tables is a guess that each
    answer confirms."""

    def __init__(self, catalog: CatalogReader, data_path: str | None, inlined: Collection[str]) -> None:
        """``data_path``: where the lake's files are, if the catalog is not to be asked; ``inlined``: the catalog's own
        tables of inlined rows, as they are known."""
        self._catalog = catalog
        self._inlined = inlined
        self._data_path = data_path
        self._with_deletes = set[int]()

    def changed(
        self, table_id: int, snapshots: Range, inlined: Sequence[InlinedColumn] | None = None
    ) -> ChangedFiles | None:
        """The files of a range; None where they don't tell all of it, or not in a way that is known here. ``inlined``:
        the columns to show of inlined rows, if they are to be read. Raises a ``ViaduckError``."""
        own = sorted(name for name in self._inlined if name.startswith(f"ducklake_inlined_data_{table_id:d}_"))
        found = self._asked(table_id, snapshots, own, inlined)
        if table_id not in self._with_deletes and found[0]:
            self._with_deletes.add(table_id)
            found = self._asked(table_id, snapshots, own, inlined)
        _, rows, places, dead, newest, retained, options, folders, names, *files = found
        held, places = [row for of_table in rows for row in of_table or ()], places or ()
        known = {str(key): value for key, value in options or ()}
        data_path = self._data_path or known.get("data_path")
        if {*(names or ())} != {*own} or dead or not retained or not _is_known(known) or data_path is None:
            return None
        if (held and inlined is None) or max(len(held), len(places)) > MOST_INLINED:
            return None
        folder = _folder(data_path, folders or ())
        return None if folder is None else _files(snapshots, int(newest), folder, files, held, places)

    def _asked(
        self, table_id: int, snapshots: Range, inlined: Sequence[str], columns: Sequence[InlinedColumn] | None
    ) -> Sequence[Any]:
        on_sqlite, has_deletes = self._catalog.is_on_sqlite, table_id in self._with_deletes
        own = f"ducklake_inlined_delete_{table_id:d}"
        names = {**(SQLITE if on_sqlite else POSTGRES).functions, "deletes": ident(own)}
        names |= {f"inlined{number}": ident(name) for number, name in enumerate(inlined)}
        names |= {f"c{number}": ident(column.name) for number, column in enumerate(columns or ())}
        text_of = _TEXT_ON_SQLITE if on_sqlite else _TEXT_ON_POSTGRES
        shown = "".join(
            ", " + (text_of if column.is_text else "i.{{c{number:d}}}").format(number=number)
            for number, column in enumerate(columns or ())
        )
        rows = ", ".join(
            "(" + _INLINED_ROWS.format(number=number, columns=shown, most=MOST_INLINED + 1) + ")"
            for number in range(len(inlined))
        )
        parts = (
            _DELETES_ON_SQLITE if on_sqlite else _DELETES_ON_POSTGRES,
            f"SELECT {{array}}({rows})",
            _INLINED_DELETES if has_deletes else "SELECT NULL",
            _ENDED_AFTER_INLINED if has_deletes else "SELECT 0",
            *_PARTS,
        )
        first, last = snapshots.inclusive()
        values: dict[str, Value] = {"table": table_id, "after": snapshots.after, "first": first, "last": last}
        values["deletes"] = own if on_sqlite else self._catalog.named(own)
        text = f"SELECT {{array}}({', '.join(f'({part})' for part in parts)}) AS found"
        (row,) = self._catalog.select(text, names, **values)
        found = row["found"]
        return json.loads(found) if isinstance(found, str) else found  # type: ignore[no-any-return]


def _is_known(options: Mapping[str, Any]) -> bool:
    return options.get("version") in KNOWN_VERSIONS and options.get("encrypted") in (None, "false")


def _folder(data_path: str, folders: Sequence[Sequence[Any]]) -> str | None:
    """Of the table's files; None where the catalog names several, or what is no text."""
    named = set[str]()
    for path, is_relative, schema, below_data in folders:
        if not isinstance(path, str) or not isinstance(schema, str):
            return None
        below = (root(data_path) if below_data else "") + root(schema) if is_relative else ""
        named.add(below + root(path))
    return named.pop() if len(named) == 1 else None


def _is_whole(path: str) -> bool:
    return path.startswith("/") or "://" in path


def _files(
    snapshots: Range,
    newest: int,
    folder: str,
    found: Sequence[Any],
    held: Sequence[Sequence[Any]],
    places: Sequence[Sequence[Any]],
) -> ChangedFiles | None:
    begun, ended, deletes = (rows or () for rows in found)
    if len(begun) + len(ended) + len(deletes) > MOST_FILES:
        return None
    data = [[_readable(folder, *row[1:6]) for row in rows] for rows in (begun, ended, deletes, places)]
    gone = [_readable(folder, path, relative, key, None, kind) for *_, path, relative, key, kind, _, _ in deletes]
    if not all(map(all, (*data, gone))) or any(row[-1] > 1 for row in deletes):
        return None  # rows of a file that has several delete files are shown twice (H13)
    return ChangedFiles(
        *snapshots.inclusive(),
        newest,
        begun=tuple(InsertedFile(path, several=row[6] is not None) for path, row in zip(data[0], begun, strict=True)),
        ended=tuple(data[1]),
        deletes=tuple(
            DeletedPlaces(path, of, int(row[-2])) for path, of, row in zip(gone, data[2], deletes, strict=True)
        ),
        rows=tuple(InlinedRow(int(begin), None if end is None else int(end), tuple(row)) for begin, end, *row in held),
        places=tuple((path, int(row[-1])) for path, row in zip(data[3], places, strict=True)),
    )


def _readable(folder: str, path: Any, relative: Any, key: Any, mapping: Any, kind: Any) -> str:
    """The path of a file of the table; empty where it is not read here: encrypted, by a mapping of names, or a pattern
    to DuckDB."""
    whole = f"{folder}{path}" if relative else str(path)
    is_plain = key is None and mapping is None and kind == "parquet"
    return whole if is_plain and _is_whole(whole) and "\x00" not in whole and not PATTERN.search(whole) else ""
