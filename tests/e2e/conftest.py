"""A topic that is landed, and what a failed test shows besides itself: the ends of its services' and brokers' logs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.topics import Landing, Topic
from tests.servers.kafka import Kafka
from tests.tiers import Tier

LINES, LINES_OF_BROKERS = 80, 20


@pytest.fixture(scope="session", autouse=True)
def in_every_deployment(spark_starts_quickly: None) -> None:
    """Deployments of these tests start Spark more than a hundred times."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    funcargs: dict[str, Any] = getattr(item, "funcargs", {})
    folder = funcargs.get("tmp_path")
    if report.when == "call" and report.failed and isinstance(folder, Path):
        for log in sorted(folder.glob("*.log")):
            report.sections.append(_end(log.name, log.read_text(errors="replace"), LINES))
        clusters = {id(value): value for value in funcargs.values() if isinstance(value, Kafka)}
        for node in (node for cluster in clusters.values() for node in cluster.nodes):
            name = f"the log of Kafka's node {node.number}, which {'runs' if node.runs else 'does not run'}"
            report.sections.append(_end(name, node.log(), LINES_OF_BROKERS))
    return report


def _end(name: str, text: str, lines: int) -> tuple[str, str]:
    return f"the end of {name}", "\n".join(text.splitlines()[-lines:])


@pytest.fixture
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether the matrix is played, or nothing is said of a tier."""
    return bool(pytestconfig.getoption("--tier") == Tier.MATRIX.name.lower())


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    return Topic(kafka)


@pytest.fixture
def landing(topic: Topic, tmp_path: Path) -> Iterator[Callable[..., Landing]]:
    made: list[Landing] = []

    def make(**options: Any) -> Landing:
        made.append(Landing(topic, tmp_path, **options))
        made[-1].seed()
        return made[-1]

    yield make
    for each in made:
        each.close()
