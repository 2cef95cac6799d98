"""Fixtures that several tests of control share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database for a registry, of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/deeper/registry.sqlite"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.lend_database()
    yield server.uri(name).replace("postgresql://", "postgresql+psycopg://")
    server.take_back(name)
