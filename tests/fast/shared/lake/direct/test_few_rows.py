"""A data file that Arrow writes is the one that a COPY writes: columns, values and what the catalog is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.lake.columns.history import Field
from shared.lake.connection.engine import connect
from shared.lake.direct.few_rows import KINDS
from shared.lake.direct.files import write_data, write_few
from shared.lake.direct.written import NewDataFile

DUCKDB_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "boolean": "BOOLEAN",
    "varchar": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "decimal(4,1)": "DECIMAL(4,1)",
    "decimal(9,8)": "DECIMAL(9,8)",
    "decimal(18,0)": "DECIMAL(18,0)",
    "decimal(18,3)": "DECIMAL(18,3)",
}

MOMENTS = st.sampled_from(
    ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00.5", "9999-12-31 23:59:59.99"]
)
DIGITS = st.integers(-999, 999).map(str)

VALUES = {
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": st.integers(0, 2**bits - 1).map(str) for bits in (8, 16, 32, 64)},
    "boolean": st.sampled_from(["true", "false"]),
    "varchar": st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.sampled_from(["", "\x00", "a\x00b", "ä" * 127, "'); DROP TABLE rows; --"]),
    "date": MOMENTS.map(lambda text: text[:10]),
    "timestamp": MOMENTS,
    "timestamp_us": MOMENTS,
    "timestamptz": MOMENTS.map(lambda text: f"{text}+00"),
    "decimal(4,1)": DIGITS.map(lambda text: f"{int(text) / 10}"),
    "decimal(9,8)": st.sampled_from(["0.00000001", "-9.99999999", "0"]),
    "decimal(18,0)": DIGITS | st.sampled_from(["999999999999999999", "-999999999999999999"]),
    "decimal(18,3)": DIGITS,
}

LEFT_TO_DUCKDB = {
    "DOUBLE": ("float64", "'NaN'"),
    "FLOAT": ("float32", "1"),
    "UUID": ("uuid", "uuid()"),
    "BLOB": ("blob", "'a'"),
    "JSON": ("json", "'1'"),
    "TIME": ("time", "'10:00:00'"),
    "INTERVAL": ("interval", "INTERVAL 1 DAY"),
    "HUGEINT": ("int128", "1"),
    "TIMESTAMP_NS": ("timestamp_ns", "'2024-01-01'"),
    "TIMESTAMP_S": ("timestamp_s", "'2024-01-01'"),
    "DECIMAL(19,2)": ("decimal(19,2)", "1"),
    "DECIMAL(2,2)": ("decimal(2,2)", "0.5"),
    "INTEGER[]": ("list", "[1]"),
    "TIMESTAMP": ("timestamp", "'infinity'"),
    "TIMESTAMP WITH TIME ZONE": ("timestamptz", "'0044-03-15 (BC) 12:00:00+00'"),
    "DATE": ("date", "'12024-01-01'"),
    "VARCHAR": ("varchar", "repeat('a', 256)"),
}


ASKED_OF_A_FILE = (
    "SELECT * FROM read_parquet($file)",
    "DESCRIBE SELECT * FROM read_parquet($file)",
    "SELECT name, type, repetition_type, field_id FROM parquet_schema($file) WHERE num_children IS NULL",
    "SELECT stats_min_value, stats_max_value, stats_null_count, num_values FROM parquet_metadata($file)",
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect(catalogs=())) as opened:
        yield opened


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[str | None]]:
    count = draw(st.integers(1, 6))
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    return {
        f"{number} {kind}": draw(st.lists(st.none() | VALUES[kind], min_size=count, max_size=count))
        for number, kind in enumerate(kinds)
    }


def test_each_type_that_arrow_writes_is_tried() -> None:
    assert {kind for kind in VALUES if not kind.startswith("decimal")} == set(KINDS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=tables())
def test_a_file_of_arrow_is_that_of_a_copy(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, values: dict[str, list[str | None]]
) -> None:
    kinds = [name.partition(" ")[2] for name in values]
    fields = [Field(7 + number, f'a "Name" {number}', kind, ()) for number, kind in enumerate(kinds)]
    rows = _rows(con, [DUCKDB_TYPES[kind] for kind in kinds], list(values.values()))
    ours, theirs = _both(con, tmp_path, rows, fields)
    assert ours is not None
    assert _told(ours) == _told(theirs)
    for what in ASKED_OF_A_FILE:
        assert _said(con, what, tmp_path / ours.name) == _said(con, what, tmp_path / theirs.name)


@pytest.mark.parametrize("declared", LEFT_TO_DUCKDB)
def test_other_types_and_bounds_are_left_to_duckdb(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, declared: str
) -> None:
    kind, value = LEFT_TO_DUCKDB[declared]
    con.execute("CREATE OR REPLACE TEMP TABLE one AS SELECT 1 AS i")
    rows = con.execute(f"SELECT i::INTEGER AS i, CAST({value} AS {declared}) AS c FROM one").to_arrow_table()
    assert write_few(con, f"{tmp_path}/", rows, [Field(1, "i", "int32", ()), Field(2, "c", kind, ())]) is None
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_type_than_the_tables_are_left_to_duckdb(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"n": pa.array([1], pa.int32())})
    assert write_few(con, f"{tmp_path}/", rows, [Field(1, "n", "int64", ())]) is None


def test_columns_go_by_name_and_what_the_table_lacks_is_left_out(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"hidden": [9], "B": [2], "a": [1]})
    written = write_few(con, f"{tmp_path}/", rows, [Field(1, "A", "int64", ()), Field(2, "b", "int64", ())])
    assert written is not None
    assert con.execute("FROM read_parquet(?)", [str(tmp_path / written.name)]).fetchall() == [(1, 2)]


def _said(con: duckdb.DuckDBPyConnection, what: str, file: Path) -> list[tuple[object, ...]]:
    return con.execute(what, {"file": str(file)}).fetchall()


def _rows(con: duckdb.DuckDBPyConnection, types: list[str], columns: list[list[str | None]]) -> pa.Table:
    texts = pa.table({f"c{number}": pa.array(values, pa.string()) for number, values in enumerate(columns)})
    con.register("texts", texts)
    typed = ", ".join(f'CAST(c{number} AS {kind}) AS "A ""name"" {number}"' for number, kind in enumerate(types))
    found = con.execute(f"SELECT {typed} FROM texts").to_arrow_table()
    con.unregister("texts")
    return found


def _both(
    con: duckdb.DuckDBPyConnection, folder: Path, rows: pa.Table, fields: list[Field]
) -> tuple[NewDataFile | None, NewDataFile]:
    con.register("rows", rows)
    try:
        return write_few(con, f"{folder}/", rows, fields), write_data(con, f"{folder}/", "rows", fields)
    finally:
        con.unregister("rows")


def _told(file: NewDataFile) -> tuple[int, list[object]]:
    return file.records, [replace(column, bytes=0) for column in file.columns]
