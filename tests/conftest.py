"""What a whole test run shares: servers, and the world's DuckDB instance; each starts when a test first asks for it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from shared.runtime.garbage import importing, spare_what_exists
from tests import scratch
from tests.listing import collected
from tests.servers import spark_archive
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3
from tests.servers.spark_cluster import SparkCluster
from tests.tiers import QUICK_S, Guard, Tier, parameters_of, select, tiers_of
from tests.world.duck import connect

settings.register_profile("viaduck", deadline=None)  # machines are noisy: how long an example takes proves nothing
settings.load_profile("viaduck")

IN_MEMORY = Path("/dev/shm")
"""Where tests have their files: a catalog in a SQLite file waits for the disk at each commit, which proves nothing."""

ROOM_BYTES = 4 << 30
"""That has to be free there: a run leaves less than one of them, and a container may have none."""

DEPLOYMENTS, MODELS = "tests/e2e/", "tests/model/"

TOGETHER = ("tests/lake/test_hostile_cursors.py",)
"""Files whose tests look at what one fixture has done for all of them."""


class Scheduling(LoadScopeScheduling):
    """Hands out test by test, but deployments file by file, whose servers are shared, files of ``TOGETHER`` likewise,
    and the models all to one process: two model checkers would only slow each other down. Files with most tests come
    first, and so not last. One process begins at the other end: deployments wait for most of their time, and single
    tests compute.

    (xdist's groups do nothing under this pytest.)
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith((DEPLOYMENTS, *TOGETHER)):
            return nodeid.partition("::")[0]
        return MODELS if nodeid.startswith(MODELS) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=[tier.name.lower() for tier in Tier], default=Tier.MATRIX.name.lower())


def pytest_configure(config: pytest.Config) -> None:
    if _has_room(IN_MEMORY):
        os.environ.setdefault(scratch.VARIABLE, str(IN_MEMORY))
    config.addinivalue_line("markers", "slow: of the tier check, and may take longer than a second of CPU")


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free >= ROOM_BYTES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nine thousand tests and their modules are no garbage, then or later."""
    with importing():
        found = yield
    spare_what_exists()
    return found


COLLECTED = pytest.StashKey[Mapping[str, Tier]]()
"""The tier of each test that was collected, before those of another tier were left out."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = tiers_of(parameters_of(items))
    items[:], others = select(items, Tier[config.getoption("--tier").upper()])
    if others:
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a fresh clone the first property reads all modules for constants to try: no test is to be charged for that."""
    if any(_has_budget(item) for item in session.items):
        _prepare_hypothesis()


@settings(database=None, max_examples=20)
@given(st.text())
def _prepare_hypothesis(text: str) -> None:
    assert isinstance(text, str)


GUARD = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with GUARD.over(item.nodeid):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    began_s = time.process_time()
    with GUARD.over(item.nodeid):
        yield
    if _has_budget(item):
        took_s = time.process_time() - began_s
        assert took_s <= QUICK_S, f"{took_s:.1f} s of CPU: make it quicker, or mark it slow (tests/tiers.py)"


def _has_budget(item: pytest.Item) -> bool:
    """Only where `make check` alone runs: beside lakes and services a second of CPU says little, and CI is no watch."""
    return item.config.getoption("--tier") == Tier.CHECK.name.lower() and item.get_closest_marker("slow") is None


@pytest.fixture(scope="session")
def all_tests(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Tier]:
    """The tier of every test that there is: as this run has collected them, or another one if this is of a part."""
    if pytestconfig.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return pytestconfig.stash[COLLECTED]
    return collected(tmp_path_factory.mktemp("collected"), [])[0]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One node, without passwords, with a faulty way in beside the good one."""
    with Kafka(faulty=True) as server:
        yield server


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[Kafka]:
    """Three nodes with TLS, SCRAM passwords and ACLs. They take a tenth of a core even while nobody asks them, so they
    end with the one file that needs them."""
    with Kafka(3, secured=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture(scope="session")
def spark_starts_quickly() -> Iterator[None]:
    """For processes that are started from here on, and in this one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_archive.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers; a test that kills one starts it again. For one file, like Kafka's cluster."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def world() -> Iterator[duckdb.DuckDBPyConnection]:
    """Where sources are written and the oracle looks at destinations; the services have instances of their own."""
    with connect() as con:
        yield con
