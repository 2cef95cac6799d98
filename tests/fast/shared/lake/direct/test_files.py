"""Whether a default is the text that DuckLake itself would keep of it."""

from __future__ import annotations

from contextlib import closing

import duckdb

from shared.lake.column_history import Field
from shared.lake.direct.files import are_kept_texts
from shared.lake.engine import connect

KEPT = {
    ("int32", "5"): True,
    ("int32", "05"): False,
    ("int32", "five"): False,
    ("float64", "nan"): True,
    ("float64", "1e3"): False,
    ("decimal(18,4)", "5.0000"): True,
    ("decimal(18,4)", "5"): False,
    ("timestamptz", "2024-01-01 10:00:00+00"): True,
    ("timestamptz", "2024-01-01 12:00:00+02"): False,
    ("varchar", "NULL"): True,
    ("varchar", "'; DROP TABLE t; --"): True,
    ("blob", "\\x00\\xFFa"): True,
    ("json", "{"): False,
}


def kept(con: duckdb.DuckDBPyConnection, kind: str, default: str | None) -> bool:
    return are_kept_texts(con, [Field(1, "a", "int32", ()), Field(2, "b", kind, (), default)])


def test_a_default_is_kept_as_ducklake_spells_its_value() -> None:
    with closing(connect()) as con:
        assert {each: kept(con, *each) for each in KEPT} == KEPT
        assert kept(con, "struct", None), "nothing is asked without a default"
