"""Where touched keys are in a table's files: by what is remembered of small files, else by one scan of the others.

Files whose kept bounds leave no room for a touched key are not looked into.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shared.lake.catalog.field_ids import POSITION_ID, SNAPSHOT_COLUMN, SNAPSHOT_ID
from shared.lake.columns.history import Field
from shared.lake.direct.file_memory import NOBODY, Dead, KeyColumns, LakeMemory, Positions
from shared.lake.direct.state import DataFile
from shared.lake.pruning import PLAIN, TEXT, may_prune, unseen
from shared.lake.sql import ident, literal, path

FEW_FILES, FEW_REMOTE_FILES = 8, 2
"""Fewer are all looked into."""

SMALL_FILE_ROWS, SMALL_FILES_ROWS = 50_000, 500_000
"""Of a file, and of all files of one lookup, whose key columns are read whole and remembered."""

KEYS_BYTES, READ_ROWS = 32_000_000, 8_192
"""Key columns of more bytes are not read whole; they are read in bites of so many rows."""

WHOLE = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER")
IN_MEMORY = re.compile(rf"{WHOLE.pattern}|{TEXT}|DATE|UUID|DECIMAL\(\d+, ?\d+\)|TIMESTAMP( WITH TIME ZONE)?")
"""Types whose values are equal where their Arrow values are. Floating numbers, for one, have two zeros."""

MOST_CODES = 2**62


@dataclass(frozen=True)
class Losing:
    """Rows of a data file that a commit deletes, and those that were deleted before."""

    positions: Positions
    dead: Dead


@dataclass(frozen=True)
class Key:
    """A key column: the field of the table, and whether its kept bounds may be believed for the touched values."""

    field: Field
    prunes: bool


@dataclass(frozen=True)
class OpenFile:
    """A data file with the paths under which it and its deletes can be read."""

    file: DataFile
    path: str
    deletes: str | None


@dataclass(frozen=True)
class Touched:
    """Touched keys as columns k0, k1, …: in memory, or a temporary table of ``con`` by its quoted path."""

    con: duckdb.DuckDBPyConnection
    in_memory: pa.Table | None
    spilling: str = ""


@contextlib.contextmanager
def _scanned(touched: Touched) -> Iterator[str]:
    """What the connection can scan for touched keys: a table, since a join hands its filters to a scan of Arrow, which
    fails for some types."""
    if touched.in_memory is None:
        yield touched.spilling
        return
    name = path("temp", "main", "touched_in_memory")
    with _registered(touched.con, "touched", touched.in_memory) as rows:
        touched.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {rows}")
    try:
        yield name
    finally:
        with contextlib.suppress(duckdb.Error):  # an error before it, which ends the connection
            touched.con.execute(f"DROP TABLE IF EXISTS {name}")


def find_positions(
    files: Sequence[OpenFile], touched: Touched, keys: Sequence[Key], known: LakeMemory, *, nulls: bool
) -> dict[int, Losing]:
    """Places of living rows whose key is among ``touched``, by the id of their file; ``nulls``: NULL equals NULL."""
    near = _near(files, touched, keys)
    if not near:
        return {}
    found = {} if nulls else _of_small_files(near, touched, keys, known)
    others = [each for each in near if each.path not in found]
    if others:
        found |= _matching(others, touched, keys, nulls=nulls)
    hit = [each for each in near if len(found.get(each.path, ()))]
    dead = dead_positions(touched.con, hit, known)
    losing = (_losing(each, found[each.path], dead.get(each.file.id, NOBODY)) for each in hit)
    return {file_id: lost for file_id, lost in losing if len(lost.positions)}


def _losing(file: OpenFile, found: Positions, dead: Dead) -> tuple[int, Losing]:
    found = np.unique(found)
    if len(dead.positions):
        places = np.minimum(np.searchsorted(dead.positions, found), len(dead.positions) - 1)
        found = found[dead.positions[places] != found]
    return file.file.id, Losing(found, dead)


@contextlib.contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> Iterator[str]:
    con.register(f"_viaduck_{name}", rows)
    try:
        yield path("temp", "main", f"_viaduck_{name}")
    finally:
        con.unregister(f"_viaduck_{name}")


# -- which files may hold them ----------------------------------------------------------------------------------------


def _near(files: Sequence[OpenFile], touched: Touched, keys: Sequence[Key]) -> list[OpenFile]:
    """The files whose kept bounds leave room for one of the touched keys; the bounds of each key, not of all.

    A few local files are opened sooner than their bounds are compared.
    """
    asked = [(number, key) for number, key in enumerate(keys) if key.prunes]
    is_remote = any("://" in each.path for each in files)
    if not asked or len(files) < (FEW_REMOTE_FILES if is_remote else FEW_FILES):
        return list(files)
    rows = touched.in_memory
    if rows is not None and all(key.field.declared in _SPELLED for _, key in asked):
        near = list(files)
        for number, key in asked:
            near = _in_bounds(near, number, rows.column(number), _SPELLED[key.field.declared])
        return near
    return _in_bounds_by_sql(files, touched, asked)


_SPELLED: Mapping[str, Callable[[str], Any]] = {
    TEXT: str.encode,
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), int),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), int),
}
"""Types → what a text of a bound compares by, as the values do: texts by their bytes."""


def _in_bounds(
    files: Sequence[OpenFile], number: int, values: pa.ChunkedArray, spelled: Callable[[str], Any]
) -> list[OpenFile]:
    wanted = sorted(spelled(each) if isinstance(each, str) else each for each in values.to_pylist() if each is not None)

    def leaves_room(bounds: tuple[str | None, str | None]) -> bool:
        try:
            least, greatest = (None if bound is None else spelled(bound) for bound in bounds)
        except (ValueError, TypeError):
            return True
        if least is None or greatest is None:
            return True
        first = bisect_left(wanted, least)
        return bool(first < len(wanted) and wanted[first] <= greatest)

    return [each for each in files if leaves_room(each.file.bounds[number])]


def _in_bounds_by_sql(files: Sequence[OpenFile], touched: Touched, asked: Sequence[tuple[int, Key]]) -> list[OpenFile]:
    columns: dict[str, Any] = {"f": pa.array(range(len(files)), pa.int64())}
    tests = []
    for number, key in asked:
        columns[f"least{number}"] = pa.array([each.file.bounds[number][0] for each in files], pa.string())
        columns[f"greatest{number}"] = pa.array([each.file.bounds[number][1] for each in files], pa.string())
        declared = key.field.declared
        least, greatest = (f"TRY_CAST(b.{bound}{number:d} AS {declared})" for bound in ("least", "greatest"))
        tests.append(f"({least} IS NULL OR {greatest} IS NULL OR t.k{number:d} BETWEEN {least} AND {greatest})")
    with _scanned(touched) as keys, _registered(touched.con, "bounds", pa.table(columns)) as bounds:
        rows = touched.con.execute(
            f"SELECT b.f FROM {bounds} b WHERE EXISTS (SELECT 1 FROM {keys} t WHERE {' AND '.join(tests)})"
        ).fetchnumpy()["f"]
    return [files[int(number)] for number in rows]


# -- small files, which are remembered --------------------------------------------------------------------------------


def _of_small_files(
    files: Sequence[OpenFile], touched: Touched, keys: Sequence[Key], known: LakeMemory
) -> dict[str, Positions]:
    """Places in all files whose key columns are remembered or read whole, by path; empty for a file without any."""
    rows = touched.in_memory
    if rows is None or not all(remembers(key.field) for key in keys):
        return {}
    columns = _columns_of(touched.con, files, keys, known)
    wanted = [_plain(rows.column(number)) for number in range(len(keys))]
    alike = {name: each for name, each in columns.items() if _are_of(each, wanted)}
    if not alike:
        return {}
    held = [pa.chunked_array([each[number] for each in alike.values()]) for number in range(len(keys))]
    places = _places(held, wanted)
    if places is None:
        return {}
    ends = np.cumsum([len(each[0]) for each in alike.values()])
    of_files = np.split(places, np.searchsorted(places, ends[:-1]))
    begins = np.concatenate([[0], ends[:-1]])
    return {name: found - begin for name, found, begin in zip(alike, of_files, begins, strict=True)}


def remembers(field: Field) -> bool:
    """Whether values of a column are remembered."""
    return IN_MEMORY.fullmatch(field.declared) is not None


def _are_of(columns: KeyColumns, wanted: Sequence[pa.ChunkedArray]) -> bool:
    return all(column.type == each.type for column, each in zip(columns, wanted, strict=True))


def _places(held: Sequence[pa.ChunkedArray], wanted: Sequence[pa.ChunkedArray]) -> Positions | None:
    """Places in ``held`` of the keys that are wanted, in ascending order; None where that can't be told here."""
    if len(wanted) == 1:
        return np.flatnonzero(pc.is_in(held[0], value_set=wanted[0].combine_chunks()))
    codes, sought, span = np.zeros(len(held[0]), np.int64), np.zeros(len(wanted[0]), np.int64), 1
    there = np.ones(len(held[0]), np.bool_)
    for column, values in zip(held, wanted, strict=True):
        different = values.unique()
        span *= len(different)
        if span > MOST_CODES:
            return None
        number = pc.index_in(column, value_set=different).fill_null(-1).to_numpy()
        there &= number >= 0
        codes = codes * len(different) + number
        sought = sought * len(different) + pc.index_in(values, value_set=different).to_numpy()
    return np.flatnonzero(there & np.isin(codes, sought))


def _columns_of(
    con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], keys: Sequence[Key], known: LakeMemory
) -> dict[str, KeyColumns]:
    fields = tuple(key.field.id for key in keys)
    found, unknown, rows = dict[str, KeyColumns](), list[OpenFile](), 0
    for each in files:
        rows += each.file.records
        if each.file.records > SMALL_FILE_ROWS or rows > SMALL_FILES_ROWS:
            rows -= each.file.records
        elif (columns := known.keys(each.path, fields)) is not None and len(columns[0]) == each.file.records:
            found[each.path] = columns
        else:
            unknown.append(each)
    for name, columns in _read_whole(con, unknown, keys).items():
        found[name] = columns
        known.keep_keys(name, fields, columns)
    return found


def _read_whole(
    con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], keys: Sequence[Key]
) -> dict[str, KeyColumns]:
    """The key columns of files as they are written, by path; none of a file that holds not the rows it should."""
    if not files:
        return {}
    asked = ", ".join(f"r.k{number:d}" for number in range(len(keys)))
    reader = con.execute(
        f"SELECT r.filename AS f, r.file_row_number AS p, {asked} FROM {_scan(keys)} r", [[each.path for each in files]]
    ).to_arrow_reader(READ_ROWS)
    batches, size = list[pa.RecordBatch](), 0
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size > KEYS_BYTES:
            return {}
    found = _by_file(pa.Table.from_batches(batches, reader.schema))
    records = {each.path: each.file.records for each in files}
    return {
        name: tuple(_plain(rows.column(2 + number)).combine_chunks() for number in range(len(keys)))
        for name, rows in found.items()
        if np.array_equal(rows.column("p").to_numpy(), np.arange(records[name]))
    }


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow compares no values of an extension's type, such as UUID."""
    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    return pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)


def keep_keys(rows: pa.Table, file: str, fields: Sequence[Field], known: LakeMemory) -> None:
    """Remember the key columns of a file that was written from ``rows``, in their order."""
    if all(remembers(field) for field in fields):
        columns = tuple(_plain(rows.column(field.name)).combine_chunks() for field in fields)
        known.keep_keys(file, tuple(field.id for field in fields), columns)


# -- other files ------------------------------------------------------------------------------------------------------


def _scan(keys: Sequence[Key]) -> str:
    """Files, which are bound, with their key columns by field id."""
    fields = ", ".join(
        f"{key.field.id:d}: {{'name': 'k{number:d}', 'type': {literal(key.field.declared)}, 'default_value': NULL}}"
        for number, key in enumerate(keys)
    )
    return f"read_parquet(?, schema = MAP {{{fields}}}, filename = true, file_row_number = true)"


def _matching(files: Sequence[OpenFile], touched: Touched, keys: Sequence[Key], *, nulls: bool) -> dict[str, Positions]:
    operator = "IS NOT DISTINCT FROM" if nulls else "="
    same = " AND ".join(
        f"{_comparable(f'r.k{number:d}', key.field)} {operator} {_comparable(f't.k{number:d}', key.field)}"
        for number, key in enumerate(keys)
    )
    with _scanned(touched) as wanted:
        found = touched.con.execute(
            f"SELECT r.filename AS f, r.file_row_number AS p FROM {_scan(keys)} r"
            f" WHERE EXISTS (SELECT 1 FROM {wanted} t WHERE {same})",
            [[each.path for each in files]],
        ).to_arrow_table()
    return {name: rows.column("p").to_numpy() for name, rows in _by_file(found).items()}


def _comparable(expression: str, field: Field) -> str:
    """Plain only where a scan may be handed the keys: of others it may miss some, as of BLOBs and floating numbers."""
    return expression if may_prune(field.declared, PLAIN, harmless=True) else unseen(expression, field.declared)


def _by_file(found: pa.Table) -> dict[str, pa.Table]:
    """The rows of each file, by the path in column ``f``, in their order."""
    if not found.num_rows:
        return {}
    names = found.column("f").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    if np.any(codes[1:] < codes[:-1]):
        order = np.argsort(codes, kind="stable")
        found, codes = found.take(pa.array(order)), codes[order]
    ends = np.searchsorted(codes, np.arange(len(names.dictionary)), side="right")
    begins = np.concatenate([[0], ends[:-1]])
    slices = zip(names.dictionary.to_pylist(), begins, ends, strict=True)
    return {name: found.slice(begin, end - begin) for name, begin, end in slices}


# -- rows that are deleted already ------------------------------------------------------------------------------------


def dead_positions(con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], known: LakeMemory) -> dict[int, Dead]:
    """The rows that the files' present delete files take away, by the id of their data file."""
    dead, unknown = dict[int, Dead](), dict[str, DataFile]()
    for each in (file for file in files if file.deletes is not None):
        remembered = known.dead(str(each.deletes), each.file.deletes[0].begin)
        if remembered is None:
            unknown[str(each.deletes)] = each.file
        else:
            dead[each.file.id] = remembered
    for name, rows in _read_deletes(con, list(unknown)).items():
        begin = unknown[name].deletes[0].begin
        positions, first = np.unique(rows.column("p").to_numpy(), return_index=True)
        found = Dead(positions, rows.column("s").fill_null(begin).to_numpy()[first])
        dead[unknown[name].id] = found
        known.keep_dead(name, begin, found)
    return dead


def _read_deletes(con: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> dict[str, pa.Table]:
    if not paths:
        return {}
    return _by_file(
        con.execute(
            f"SELECT d.filename AS f, d.pos AS p, d.{ident(SNAPSHOT_COLUMN)} AS s FROM read_parquet(?, schema = MAP {{"
            f" {POSITION_ID:d}: {{'name': 'pos', 'type': 'BIGINT', 'default_value': NULL}},"
            f" {SNAPSHOT_ID:d}: {{'name': '{SNAPSHOT_COLUMN}', 'type': 'BIGINT', 'default_value': NULL}}"
            "}, filename = true) d",
            [paths],
        ).to_arrow_table()
    )
