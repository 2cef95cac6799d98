"""Positions of keys: remembered columns, whole reads and scans find the same; files change under a memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.catalogs import ResolvedLake
from shared.lake.columns.history import Field
from shared.lake.direct import positions
from shared.lake.direct.file_memory import NOBODY, Dead, FileMemory, LakeMemory
from shared.lake.direct.positions import Key, OpenFile, Touched, find_positions
from shared.lake.direct.state import DataFile

FILES, ROWS = 12, 40
TYPES = {
    "BIGINT": "x",
    "INTEGER": "x",
    "VARCHAR": "'k' || x",
    "UUID": "md5(x::VARCHAR)::UUID",
    "DATE": "DATE '2024-01-01' + x::INTEGER",
    "DECIMAL(18,4)": "x / 8",
    "TIMESTAMP": "TIMESTAMP '2024-01-01' + to_seconds(x)",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_seconds(x)",
    "DOUBLE": "x / 8",
    "BLOB": "('\\xFF' || x)::BLOB",
    "BOOLEAN": "x % 2 = 0",
    "TIMESTAMP_NS": "(TIMESTAMP '2024-01-01' + to_seconds(x))::TIMESTAMP_NS",
}
DUCKLAKES = {"BIGINT": "int64", "INTEGER": "int32", "VARCHAR": "varchar", "UUID": "uuid", "DATE": "date",
             "DECIMAL(18,4)": "decimal(18,4)", "TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamptz",
             "DOUBLE": "float64", "BLOB": "blob", "BOOLEAN": "boolean", "TIMESTAMP_NS": "timestamp_ns"}  # fmt: skip


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        for setting in ("threads = 1", "TimeZone = 'UTC'", "arrow_lossless_conversion = true"):
            made.execute(f"SET {setting}")
        yield made


@pytest.fixture
def known(tmp_path: Path) -> LakeMemory:
    return LakeMemory(FileMemory(), ResolvedLake(f"sqlite:{tmp_path / 'l.sqlite'}"))


def _key(number: int, declared: str, *, prunes: bool) -> Key:
    return Key(Field(number, f"k{number}", DUCKLAKES[declared], ()), prunes)


def _written(con: duckdb.DuckDBPyConnection, folder: Path, kinds: list[str], rng: random.Random) -> list[OpenFile]:
    found = []
    for number in range(FILES):
        file = str(folder / f"{number}.parquet")
        held = ", ".join(f"({', '.join(str(rng.randrange(300)) for _ in kinds)})" for _ in range(ROWS))
        columns = ", ".join(f"x{i}" for i in range(len(kinds)))
        values = ", ".join(f"({_of(kind, f'x{i}')})::{kind} AS k{i}" for i, kind in enumerate(kinds))
        ids = ", ".join(f"k{i}: {i}" for i in range(len(kinds)))
        rows = f"SELECT {values} FROM (VALUES {held}) r({columns})"
        con.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet, FIELD_IDS {{{ids}}})")
        least = ", ".join(f"min(k{i})::VARCHAR, max(k{i})::VARCHAR" for i in range(len(kinds)))
        said = con.execute(f"SELECT {least} FROM read_parquet('{file}')").fetchall()[0]
        bounds = tuple((said[i], said[i + 1]) for i in range(0, len(said), 2))
        found.append(OpenFile(DataFile(number, file, ROWS, 1_000, True, (), bounds), file, None))
    return found


def _of(kind: str, value: str) -> str:
    return TYPES[kind].replace("x", value) if kind != "BLOB" else f"encode('b' || {value})"


def _touched(con: duckdb.DuckDBPyConnection, kinds: list[str], rng: random.Random, count: int) -> pa.Table:
    held = ", ".join(f"({', '.join(str(rng.randrange(60)) for _ in kinds)})" for _ in range(count))
    columns = ", ".join(f"x{i}" for i in range(len(kinds)))
    values = ", ".join(f"({_of(kind, f'x{i}')})::{kind} AS k{i}" for i, kind in enumerate(kinds))
    return con.execute(f"SELECT DISTINCT {values} FROM (VALUES {held}) r({columns})").to_arrow_table()


def _plainly(con: duckdb.DuckDBPyConnection, files: list[OpenFile], touched: pa.Table) -> dict[int, list[int]]:
    con.execute("CREATE OR REPLACE TEMP TABLE wanted AS FROM touched")
    names = ", ".join(touched.column_names)
    found = con.execute(
        f"SELECT filename, file_row_number FROM read_parquet(?, filename = true, file_row_number = true)"
        f" WHERE ({names}) IN (SELECT ({names}) FROM wanted) ORDER BY ALL",
        [[each.path for each in files]],
    ).fetchall()
    by_file = itertools.groupby(found, key=lambda row: row[0])
    ids = {each.path: each.file.id for each in files}
    return {ids[name]: [place for _, place in rows] for name, rows in by_file}


def _shown(found: dict[int, Any]) -> dict[int, list[int]]:
    return {number: lost.positions.tolist() for number, lost in found.items()}


KINDS = [
    *([kind] for kind in TYPES),
    *([kind, other] for kind in TYPES for other in ("DOUBLE", "BLOB") if kind != other),
    ["BIGINT", "VARCHAR"],
    ["UUID", "DATE", "INTEGER"],
]
"""Keys of one column, with a column whose files are always scanned, and of several that are remembered."""


@pytest.mark.parametrize("kinds", KINDS)
def test_what_is_remembered_read_whole_and_scanned_is_found_alike(
    con: duckdb.DuckDBPyConnection, known: LakeMemory, tmp_path: Path, kinds: list[str]
) -> None:
    rng = random.Random(str(kinds))
    files = _written(con, tmp_path, kinds, rng)
    keys = [_key(number, kind, prunes=kind not in ("DOUBLE", "BLOB")) for number, kind in enumerate(kinds)]
    for count in (25, 2_000, 25):  # a join builds its table of the smaller side, and filters the other one's scan
        touched = _touched(con, kinds, rng, count)
        right = _plainly(con, files, touched)
        in_memory = find_positions(files, Touched(con, touched), keys, known, nulls=False)
        con.execute("CREATE OR REPLACE TEMP TABLE scanned AS FROM touched")
        scanned = find_positions(files, Touched(con, None, "scanned"), keys, known, nulls=False)
        assert _shown(in_memory) == _shown(scanned) == right
    assert (len(known.memory) > 0) is all(positions.remembers(key.field) for key in keys)


@given(st.lists(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_rows_that_are_deleted_already_are_not_deleted_again(found: list[int], deleted: set[int]) -> None:
    file = OpenFile(DataFile(7, "7", 21, 1_000, True, (), ()), "7", "7-delete")
    gone = np.array(sorted(deleted), dtype=np.int64)
    number, losing = positions._losing(file, np.array(found, dtype=np.int64), Dead(gone, gone))
    assert (number, losing.positions.tolist()) == (7, sorted(set(found) - deleted))


def test_remembered_files_are_not_read_again_and_replaced_ones_are(
    con: duckdb.DuckDBPyConnection, known: LakeMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, keys = _written(con, tmp_path, ["BIGINT"], random.Random(1)), [_key(0, "BIGINT", prunes=False)]
    wanted = Touched(con, pa.table({"k0": pa.array(range(300), pa.int64())}))
    assert len(find_positions(files, wanted, keys, known, nulls=False)) == FILES
    read = list[str]()
    whole = positions._read_whole

    def noted(con: duckdb.DuckDBPyConnection, files: Any, keys: Any) -> Any:
        read.extend(each.path for each in files)
        return whole(con, files, keys)

    monkeypatch.setattr(positions, "_read_whole", noted)
    find_positions(files, wanted, keys, known, nulls=False)
    assert read == []
    con.execute(f"COPY (SELECT -1::BIGINT AS k0 FROM range({ROWS})) TO '{files[3].path}' (FIELD_IDS {{k0: 0}})")
    found = find_positions(files, wanted, keys, known, nulls=False)
    assert read == [files[3].path]
    assert 3 not in found


def test_a_missing_file_is_missed_although_it_is_remembered(
    con: duckdb.DuckDBPyConnection, known: LakeMemory, tmp_path: Path
) -> None:
    files, keys = _written(con, tmp_path, ["BIGINT"], random.Random(2)), [_key(0, "BIGINT", prunes=False)]
    wanted = Touched(con, pa.table({"k0": pa.array(range(300), pa.int64())}))
    find_positions(files, wanted, keys, known, nulls=False)
    Path(files[5].path).unlink()
    with pytest.raises(duckdb.IOException):
        find_positions(files, wanted, keys, known, nulls=False)


def test_a_memory_keeps_to_its_bytes_and_to_the_lake() -> None:
    memory = FileMemory(limit_bytes=20_000)
    one, other = (LakeMemory(memory, ResolvedLake(f"sqlite:/{name}")) for name in "ab")
    for number in range(100):
        one.keep_dead(f"s3://b/{number}", 1, NOBODY)
    assert 0 < len(memory) <= 20
    assert one.dead("s3://b/99", 1) is NOBODY
    assert one.dead("s3://b/0", 1) is None, "the oldest go first"
    assert other.dead("s3://b/99", 1) is None, "a file of another lake is another file"
    assert one.dead("s3://b/99", 2) is None, "the same positions count since another snapshot"
    one.keep_keys("s3://b/large", (1,), (pa.array(range(1_000)),))
    assert one.keys("s3://b/large", (1,)) is None, "what alone would fill a tenth is not kept"
