"""What a whole test run shares: servers, and the world's DuckDB instance; each starts when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.servers.postgres import Postgres
from tests.world.duck import connect


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def world() -> Iterator[duckdb.DuckDBPyConnection]:
    """Where sources are written and the oracle looks at destinations; the services have instances of their own."""
    with connect() as con:
        yield con
