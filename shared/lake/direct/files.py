"""The files of a commit: delete files, and a data file.

Every path was found to be below the lake's data path (``paths``), and the instance that reads and writes here runs no
SQL of a catalog: no view, default, sort expression or macro.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shared.lake.catalog.field_ids import FILE_PATH_ID, POSITION_ID, SNAPSHOT_COLUMN, SNAPSHOT_ID
from shared.lake.columns.history import Field
from shared.lake.direct import store
from shared.lake.direct.few_rows import encode, parquet_field
from shared.lake.direct.file_memory import Dead, LakeMemory
from shared.lake.direct.positions import Losing, OpenFile
from shared.lake.direct.statistics import file_columns
from shared.lake.direct.written import NewDataFile, NewDeleteFile, Written
from shared.lake.sql import ident, literal

GROUP_ROWS, GROUP_BYTES = 122_880, 16_000_000
"""Of a row group of a data file: DuckDB's own number of rows, and about the most bytes where that would be more."""

VECTOR_ROWS = 2_048
"""DuckDB writes row groups of whole vectors."""


@dataclass(frozen=True)
class TableFiles:
    """Where a table's files are, and the lake's: each with a slash at its end."""

    folder: str
    data_path: str


def write_deletes(
    con: duckdb.DuckDBPyConnection,
    table: TableFiles,
    files: Sequence[OpenFile],
    losing: Mapping[int, Losing],
    snapshot: int,
    known: LakeMemory,
) -> Written:
    """One delete file for each data file that loses rows in ``snapshot``; a data file without any left ends instead."""
    written, ended = list[NewDeleteFile](), list[int]()
    for each in (file for file in files if file.file.id in losing):
        lost = losing[each.file.id]
        if len(lost.dead.positions) + len(lost.positions) >= each.file.records:
            ended.append(each.file.id)
        else:
            written.append(_write_deletes_of(con, table, each, lost, snapshot, known))
    return Written(
        deletes=tuple(written), ended=tuple(ended), deleted_rows=sum(len(lost.positions) for lost in losing.values())
    )


def _write_deletes_of(
    con: duckdb.DuckDBPyConnection,
    table: TableFiles,
    file: OpenFile,
    lost: Losing,
    snapshot: int,
    known: LakeMemory,
) -> NewDeleteFile:
    name = f"ducklake-{uuid.uuid4()}-delete.parquet"
    replaced = file.file.deletes[0] if file.file.deletes else None
    begin = snapshot if replaced is None else replaced.begin
    dead = _dead_with(lost, snapshot)
    gone = _delete_rows(file.path, dead, with_snapshots=replaced is not None)
    content = io.BytesIO()
    pq.write_table(gone, content, use_dictionary=["file_path"], store_schema=False)
    size, footer = store.write(con, table.folder + name, content.getvalue())
    known.keep_dead(table.folder + name, begin, dead)
    if replaced is None:
        return NewDeleteFile(name, file.file.id, gone.num_rows, size, footer, begin)
    below = str(file.deletes).removeprefix(table.data_path)
    return NewDeleteFile(name, file.file.id, gone.num_rows, size, footer, begin, snapshot, (replaced.id, below))


def _dead_with(lost: Losing, snapshot: int) -> Dead:
    """What is deleted before and by a commit."""
    gone = np.concatenate([lost.dead.positions, lost.positions])
    since = np.concatenate([lost.dead.snapshots, np.full(len(lost.positions), snapshot, dtype=np.int64)])
    order = np.argsort(gone, kind="stable")
    return Dead(gone[order], since[order])


def _delete_rows(path: str, dead: Dead, *, with_snapshots: bool) -> pa.Table:
    """Of a delete file, in the order of their places; of several snapshots, if it says when each row went."""
    paths = pa.repeat(pa.scalar(path, pa.string()), len(dead.positions))
    columns = [(parquet_field("file_path", pa.string(), FILE_PATH_ID), paths)]
    columns.append((parquet_field("pos", pa.int64(), POSITION_ID), pa.array(dead.positions)))
    if with_snapshots:
        columns.append((parquet_field(SNAPSHOT_COLUMN, pa.int64(), SNAPSHOT_ID), pa.array(dead.snapshots)))
    return pa.table([values for _, values in columns], schema=pa.schema([field for field, _ in columns]))


def write_few(
    con: duckdb.DuckDBPyConnection, folder: str, rows: pa.Table, fields: Sequence[Field]
) -> NewDataFile | None:
    """A data file of rows in memory; None where ``write_data`` has to write them, for the types of their columns."""
    encoded = encode(rows, fields)
    if encoded is None:
        return None
    name = f"ducklake-{uuid.uuid4()}.parquet"
    size, footer = store.write(con, folder + name, encoded.content)
    return NewDataFile(name, rows.num_rows, size, footer, encoded.columns)


def write_data(
    con: duckdb.DuckDBPyConnection, folder: str, rows: str, fields: Sequence[Field], row_bytes: float = 0.0
) -> NewDataFile:
    """A data file of what ``rows`` can be scanned for, in the table's columns; a row has about ``row_bytes``."""
    name = f"ducklake-{uuid.uuid4()}.parquet"
    columns = ", ".join(f"CAST({ident(field.name)} AS {field.declared}) AS {ident(field.name)}" for field in fields)
    ids = ", ".join(f"{ident(field.name)}: {_field_ids(field)}" for field in fields)
    _, count, size, footer, told, _ = con.execute(
        f"COPY (SELECT {columns} FROM {rows}) TO {literal(folder + name)}"
        f" (FORMAT parquet, RETURN_STATS, PRESERVE_ORDER true, ROW_GROUP_SIZE {group_rows(row_bytes):d},"
        f" FIELD_IDS {{{ids}}})"
    ).fetchall()[0]
    return NewDataFile(name, int(count), int(size), int(footer), file_columns(fields, told))


def group_rows(row_bytes: float) -> int:
    """Rows of a row group, as many as DuckDB takes unless they are many bytes: a group is in memory until it is whole,
    and then once more as it is written."""
    fitting = int(GROUP_BYTES / max(1.0, row_bytes)) // VECTOR_ROWS * VECTOR_ROWS
    return min(GROUP_ROWS, max(VECTOR_ROWS, fitting))


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
