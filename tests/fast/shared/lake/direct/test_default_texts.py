"""Whether a default is the text that DuckLake itself would keep of it."""

from __future__ import annotations

from contextlib import closing

import duckdb

from shared.lake.columns.history import Field
from shared.lake.connection.engine import connect
from shared.lake.direct.default_texts import MOST_TEXTS, KeptTexts

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
    return KeptTexts().hold(con, [Field(1, "a", "int32", ()), Field(2, "b", kind, (), default)])


def test_a_default_is_kept_as_ducklake_spells_its_value() -> None:
    with closing(connect()) as con:
        assert {each: kept(con, *each) for each in KEPT} == KEPT
        assert kept(con, "struct", None), "nothing is asked without a default"


class Asked:
    """A connection that counts what it is asked."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con, self.times = con, 0

    def execute(self, sql: str, values: list[str]) -> duckdb.DuckDBPyConnection:
        self.times += 1
        return self._con.execute(sql, values)


def test_duckdb_is_asked_once_for_each_default_and_what_is_remembered_has_a_bound() -> None:
    texts, fields = KeptTexts(), [Field(1, "a", "int32", (), "5"), Field(2, "b", "int32", (), "5")]
    with closing(connect()) as con:
        asked = Asked(con)
        for _ in range(3):
            assert texts.hold(asked, fields)  # type: ignore[arg-type]
        assert asked.times == 1
        wrong = [Field(1, "a", "int32", (), "05")]
        assert not texts.hold(asked, [*fields, *wrong])  # type: ignore[arg-type]
        assert asked.times == 2
        for number in range(MOST_TEXTS):
            assert texts.hold(asked, [Field(1, "a", "int32", (), str(number))])  # type: ignore[arg-type]
        assert len(texts._known) <= MOST_TEXTS
