"""What a whole test run shares: servers, and the world's DuckDB instance; each starts when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3
from tests.servers.spark_cluster import SparkCluster
from tests.world.duck import connect

settings.register_profile("viaduck", deadline=None)  # machines are noisy: how long an example takes proves nothing
settings.load_profile("viaduck")

TOGETHER = ("tests/e2e/test_torture.py", "tests/e2e/", "tests/model/")
"""What starts whole deployments shares its servers, and two model checkers would only slow each other down: each of
these is run by one process, test after test, while the others do the rest."""


class Scheduling(LoadScopeScheduling):
    """Hands out test by test, but each of ``TOGETHER`` whole. (xdist's groups do nothing under this pytest.)"""

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One node, without passwords, with a faulty way in beside the good one."""
    with Kafka(faulty=True) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Kafka]:
    """Three nodes with TLS, SCRAM passwords and ACLs."""
    with Kafka(3, secured=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers; a test that kills one starts it again."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def world() -> Iterator[duckdb.DuckDBPyConnection]:
    """Where sources are written and the oracle looks at destinations; the services have instances of their own."""
    with connect() as con:
        yield con
