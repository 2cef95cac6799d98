"""What every DuckDB instance of ours is like."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pytest

from shared.lake.connection.engine import EXTENSIONS, connect


def test_an_instance_has_our_extensions_and_accepts_no_others_that_are_unsigned() -> None:
    with closing(connect()) as con:
        loaded = con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
        assert set(EXTENSIONS) <= {name for (name,) in loaded}
        assert con.execute("SELECT current_setting('allow_unsigned_extensions')").fetchall() == [(False,)]
        with pytest.raises(duckdb.InvalidInputException, match="allow_unsigned_extensions"):
            con.execute("SET allow_unsigned_extensions = true")
