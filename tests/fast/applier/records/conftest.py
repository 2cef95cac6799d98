from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from shared.lake.connection.engine import connect
from tests.fast.applier.records.records import Table


@pytest.fixture(scope="session")
def instance() -> Iterator[duckdb.DuckDBPyConnection]:
    con = connect(catalogs=())
    yield con
    con.close()


@pytest.fixture
def con(instance: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """An instance that is left as it was found."""
    yield instance
    left = "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'memory'"
    assert instance.execute(left).fetchall() == []


@pytest.fixture
def table(con: duckdb.DuckDBPyConnection) -> Table:
    return Table(con)
