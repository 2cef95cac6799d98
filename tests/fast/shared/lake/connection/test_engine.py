"""What every DuckDB instance of ours is like."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from shared.lake.connection.engine import EXTENSIONS, FORGOTTEN, POSTGRES_SETTINGS, SETTINGS, connect


def test_an_instance_has_our_extensions_and_accepts_no_others_that_are_unsigned() -> None:
    with closing(connect()) as con:
        loaded = con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
        assert set(EXTENSIONS) <= {name for (name,) in loaded}
        assert con.execute("SELECT current_setting('allow_unsigned_extensions')").fetchall() == [(False,)]
        with pytest.raises(duckdb.InvalidInputException, match="allow_unsigned_extensions"):
            con.execute("SET allow_unsigned_extensions = true")


SURROUNDINGS = {
    "AWS_ACCESS_KEY_ID": "ambient-id",
    "AWS_SECRET_ACCESS_KEY": "ambient-secret",
    "AWS_SESSION_TOKEN": "ambient-token",
    "AWS_REGION": "ambient-region",
    "DUCKDB_S3_ENDPOINT": "ambient-host",
    "DUCKDB_S3_USE_SSL": "false",
}


def test_every_cursor_has_its_settings_whatever_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads work in cursors, which know nothing of what is set for a connection alone. Of the surroundings' time zone
    see ``tests/__init__.py``."""
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)
    with closing(connect()) as con:
        for asked in (con, con.cursor(), con.cursor().cursor()):
            found = dict(asked.execute("SELECT name, lower(value) FROM duckdb_settings()").fetchall())
            for setting in (*SETTINGS, *FORGOTTEN, *POSTGRES_SETTINGS):
                name, _, value = setting.removeprefix("SET ").removeprefix("GLOBAL ").partition(" = ")
                assert found[name] == value.strip("'").lower(), name


@pytest.mark.parametrize("name", ["strangers", "memory.main.strangers"])
def test_a_table_that_is_missing_is_not_found_among_our_variables(name: str) -> None:
    strangers = pa.table({"i": [1]})
    with closing(connect(catalogs=())) as con:
        for asked in (con, con.cursor(), con.cursor().cursor()):
            with pytest.raises(duckdb.CatalogException, match="strangers does not exist"):
                asked.execute(f"SELECT * FROM {name}")
    assert strangers.num_rows == 1
