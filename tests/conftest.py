"""Servers that a whole test run shares; each starts when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server
