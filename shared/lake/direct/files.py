"""The files of a commit: where touched keys are in the table's files, delete files, and a data file.

Every path was found to be below the lake's data path (``paths``), and the instance that reads and writes here runs no
SQL of a catalog: no view, default, sort expression or macro.
"""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shared.lake.column_history import Field
from shared.lake.direct import store
from shared.lake.direct.batch import NewDataFile, NewDeleteFile, Written
from shared.lake.direct.state import DataFile
from shared.lake.direct.statistics import file_columns
from shared.lake.pruning import PLAIN, may_prune, unseen
from shared.lake.sql import ident, literal, path

FILE_PATH_ID, POSITION_ID, SNAPSHOT_ID = 2147483646, 2147483645, 2147483539
"""Field ids of the columns of a delete file."""

SNAPSHOT_COLUMN = "_ducklake_internal_snapshot_id"
"""When a row went, in a delete file of several snapshots."""

FEW_FILES, FEW_REMOTE_FILES = 8, 2
"""Fewer are all looked into."""

Positions = npt.NDArray[np.int64]
"""Numbers of rows in a file, from 0."""

NO_POSITIONS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Dead:
    """Rows of a data file that are deleted: places in ascending order, and the snapshot that took each away."""

    positions: Positions
    snapshots: Positions


NOBODY = Dead(NO_POSITIONS, NO_POSITIONS)


@dataclass(frozen=True)
class Losing:
    """Rows of a data file that a commit deletes, and those that were deleted before."""

    positions: Positions
    dead: Dead


@dataclass(frozen=True)
class TableFiles:
    """Where a table's files are, and the lake's: each with a slash at its end."""

    folder: str
    data_path: str


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


def find_positions(
    con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], touched: str, keys: Sequence[Key], *, nulls: bool
) -> dict[int, Losing]:
    """Places of living rows whose key is among ``touched`` (a table of columns k0, k1, …), by the id of their file."""
    near = _near(con, files, touched, keys)
    if not near:
        return {}
    found = _matching(con, near, touched, keys, nulls=nulls)
    hit = [each for each in near if each.path in found]
    dead = dead_positions(con, hit)
    losing = (_losing(each, found[each.path], dead.get(each.file.id, NOBODY)) for each in hit)
    return {file_id: lost for file_id, lost in losing if len(lost.positions)}


def _losing(file: OpenFile, found: Positions, dead: Dead) -> tuple[int, Losing]:
    return file.file.id, Losing(np.setdiff1d(found, dead.positions), dead)


@contextlib.contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> Iterator[str]:
    con.register(f"_viaduck_{name}", rows)
    try:
        yield path("temp", "main", f"_viaduck_{name}")
    finally:
        con.unregister(f"_viaduck_{name}")


def _near(
    con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], touched: str, keys: Sequence[Key]
) -> list[OpenFile]:
    """The files whose kept bounds leave room for one of the touched keys; the bounds of each key, not of all.

    A few local files are opened sooner than their bounds are compared.
    """
    asked = [(number, key) for number, key in enumerate(keys) if key.prunes]
    is_remote = any("://" in each.path for each in files)
    if not asked or len(files) < (FEW_REMOTE_FILES if is_remote else FEW_FILES):
        return list(files)
    columns: dict[str, Any] = {"f": pa.array(range(len(files)), pa.int64())}
    tests = []
    for number, key in asked:
        columns[f"least{number}"] = pa.array([each.file.bounds[number][0] for each in files], pa.string())
        columns[f"greatest{number}"] = pa.array([each.file.bounds[number][1] for each in files], pa.string())
        declared = key.field.declared
        least, greatest = (f"TRY_CAST(b.{bound}{number:d} AS {declared})" for bound in ("least", "greatest"))
        tests.append(f"({least} IS NULL OR {greatest} IS NULL OR t.k{number:d} BETWEEN {least} AND {greatest})")
    with _registered(con, "bounds", pa.table(columns)) as bounds:
        rows = con.execute(
            f"SELECT b.f FROM {bounds} b WHERE EXISTS (SELECT 1 FROM {touched} t WHERE {' AND '.join(tests)})"
        ).fetchnumpy()["f"]
    return [files[int(number)] for number in rows]


def _matching(
    con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile], touched: str, keys: Sequence[Key], *, nulls: bool
) -> dict[str, Positions]:
    operator = "IS NOT DISTINCT FROM" if nulls else "="
    fields = ", ".join(
        f"{key.field.id:d}: {{'name': 'k{number:d}', 'type': {literal(key.field.declared)}, 'default_value': NULL}}"
        for number, key in enumerate(keys)
    )
    same = " AND ".join(
        f"{_comparable(f'r.k{number:d}', key.field)} {operator} {_comparable(f't.k{number:d}', key.field)}"
        for number, key in enumerate(keys)
    )
    found = con.execute(
        "SELECT r.filename AS f, r.file_row_number AS p FROM read_parquet(?, schema = MAP {" + fields + "},"
        f" filename = true, file_row_number = true) r WHERE EXISTS (SELECT 1 FROM {touched} t WHERE {same})",
        [[each.path for each in files]],
    ).to_arrow_table()
    return {name: rows.column("p").to_numpy() for name, rows in _by_file(found).items()}


def _comparable(expression: str, field: Field) -> str:
    """Plain only where a scan may be handed the keys: of others it may miss some, as of BLOBs and floating numbers."""
    return expression if may_prune(field.declared, PLAIN, harmless=True) else unseen(expression, field.declared)


def dead_positions(con: duckdb.DuckDBPyConnection, files: Sequence[OpenFile]) -> dict[int, Dead]:
    """The rows that the files' present delete files take away, by the id of their data file."""
    owners = {each.deletes: each.file for each in files if each.deletes is not None}
    if not owners:
        return {}
    found = con.execute(
        f"SELECT d.filename AS f, d.pos AS p, d.{ident(SNAPSHOT_COLUMN)} AS s FROM read_parquet(?, schema = MAP {{"
        f" {POSITION_ID:d}: {{'name': 'pos', 'type': 'BIGINT', 'default_value': NULL}},"
        f" {SNAPSHOT_ID:d}: {{'name': '{SNAPSHOT_COLUMN}', 'type': 'BIGINT', 'default_value': NULL}}"
        "}, filename = true) d",
        [list(owners)],
    ).to_arrow_table()
    dead = dict[int, Dead]()
    for name, rows in _by_file(found).items():
        begin = owners[name].deletes[0].begin
        positions, first = np.unique(rows.column("p").to_numpy(), return_index=True)
        dead[owners[name].id] = Dead(positions, rows.column("s").fill_null(begin).to_numpy()[first])
    return dead


def _by_file(found: pa.Table) -> dict[str, pa.Table]:
    return {name: found.filter(pc.equal(found.column("f"), name)) for name in pc.unique(found.column("f")).to_pylist()}


def write_deletes(
    con: duckdb.DuckDBPyConnection,
    table: TableFiles,
    files: Sequence[OpenFile],
    losing: Mapping[int, Losing],
    snapshot: int,
) -> Written:
    """One delete file for each data file that loses rows in ``snapshot``; a data file without any left ends instead."""
    written, ended = list[NewDeleteFile](), list[int]()
    for each in (file for file in files if file.file.id in losing):
        lost = losing[each.file.id]
        if len(lost.dead.positions) + len(lost.positions) >= each.file.records:
            ended.append(each.file.id)
        else:
            written.append(_write_deletes_of(con, table, each, lost, snapshot))
    return Written(
        deletes=tuple(written), ended=tuple(ended), deleted_rows=sum(len(lost.positions) for lost in losing.values())
    )


def _write_deletes_of(
    con: duckdb.DuckDBPyConnection, table: TableFiles, file: OpenFile, lost: Losing, snapshot: int
) -> NewDeleteFile:
    name = f"ducklake-{uuid.uuid4()}-delete.parquet"
    replaced = file.file.deletes[0] if file.file.deletes else None
    gone = _delete_rows(file.path, lost, None if replaced is None else snapshot)
    content = io.BytesIO()
    pq.write_table(gone, content, use_dictionary=["file_path"], store_schema=False)
    size, footer = store.write(con, table.folder + name, content.getvalue())
    if replaced is None:
        return NewDeleteFile(name, file.file.id, gone.num_rows, size, footer, snapshot)
    below = str(file.deletes).removeprefix(table.data_path)
    return NewDeleteFile(
        name, file.file.id, gone.num_rows, size, footer, replaced.begin, snapshot, (replaced.id, below)
    )


def _delete_rows(path: str, lost: Losing, snapshot: int | None) -> pa.Table:
    """Of a delete file, in the order of their places; of several snapshots where ``snapshot`` is given."""
    gone = np.concatenate([lost.dead.positions, lost.positions])
    order = np.argsort(gone, kind="stable")
    paths = pa.repeat(pa.scalar(path, pa.string()), len(gone))
    columns = [(_field("file_path", pa.string(), FILE_PATH_ID), paths)]
    columns.append((_field("pos", pa.int64(), POSITION_ID), pa.array(gone[order])))
    if snapshot is not None:
        since = np.concatenate([lost.dead.snapshots, np.full(len(lost.positions), snapshot, dtype=np.int64)])
        columns.append((_field(SNAPSHOT_COLUMN, pa.int64(), SNAPSHOT_ID), pa.array(since[order])))
    return pa.table([values for _, values in columns], schema=pa.schema([field for field, _ in columns]))


def _field(name: str, arrow_type: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(field_id)})


def write_data(con: duckdb.DuckDBPyConnection, folder: str, rows: str, fields: Sequence[Field]) -> NewDataFile:
    """A data file of what ``rows`` can be scanned for, in the table's columns."""
    name = f"ducklake-{uuid.uuid4()}.parquet"
    columns = ", ".join(f"CAST({ident(field.name)} AS {field.declared}) AS {ident(field.name)}" for field in fields)
    ids = ", ".join(f"{ident(field.name)}: {_field_ids(field)}" for field in fields)
    _, count, size, footer, told, _ = con.execute(
        f"COPY (SELECT {columns} FROM {rows}) TO {literal(folder + name)}"
        f" (FORMAT parquet, RETURN_STATS, FIELD_IDS {{{ids}}})"
    ).fetchall()[0]
    return NewDataFile(name, int(count), int(size), int(footer), file_columns(fields, told))


def _field_ids(field: Field) -> str:
    if not field.fields:
        return f"{field.id:d}"
    inner = ", ".join(f"{ident(part.name)}: {_field_ids(part)}" for part in field.fields)
    return f"{{__duckdb_field_id: {field.id:d}, {inner}}}"


def duckdb_types(con: duckdb.DuckDBPyConnection, fields: Sequence[Field]) -> tuple[str, ...]:
    """The fields' types as DuckDB spells them, which quotes fewer names within nested ones than a declaration does."""
    asked = ", ".join(f"typeof(CAST(NULL AS {field.declared}))" for field in fields)
    return tuple(str(each) for each in con.execute(f"SELECT {asked}").fetchall()[0])


def make_folder(folder: str) -> None:
    """Make a local folder for the table's files, which a store has without being asked."""
    if "://" not in folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
