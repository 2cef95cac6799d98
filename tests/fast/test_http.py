from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
import pytest

from shared.http import ServiceServer, own_port, peers
from shared.metrics import Metrics

CHECKS: dict[str, str | None] = {"broker": None, "spark": None}


@pytest.fixture
def checks() -> dict[str, str | None]:
    return dict(CHECKS)


@pytest.fixture
def client(checks: Mapping[str, str | None]) -> Iterator[httpx.Client]:
    server = ServiceServer("127.0.0.1", 0, Metrics("p").exposition, lambda: checks)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client
    server.stop()


def test_metrics_are_served_as_prometheus_reads_them(client: httpx.Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'viaduck_polls_total{pipeline="p"} 0.0' in answer.text


def test_ready_means_that_no_dependency_is_wrong(client: httpx.Client, checks: dict[str, str | None]) -> None:
    assert client.get("/readyz").status_code == 200
    checks["spark"] = "the session is starting"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "checks": {"broker": None, "spark": "the session is starting"}}


def test_health_does_not_depend_on_dependencies(client: httpx.Client, checks: dict[str, str | None]) -> None:
    checks["broker"] = "away"
    assert client.get("/healthz").status_code == 200


def test_anything_else_is_not_found(client: httpx.Client) -> None:
    assert client.get("/v1/pipelines").status_code == 404
    assert client.get("/metrics?name=x").status_code == 200
    assert client.post("/metrics").status_code == 501


def test_a_taken_port_is_told_at_once() -> None:
    server = ServiceServer("127.0.0.1", 0, Metrics("p").exposition, dict)
    with pytest.raises(OSError, match="in use"):
        ServiceServer("127.0.0.1", server.port, Metrics("p").exposition, dict)
    server.start()
    server.stop()


def test_peers_and_the_own_port_come_from_the_environment() -> None:
    environ = {"VIADUCK_PEERS": "reader=http://127.0.0.1:1,applier=http://127.0.0.1:2", "VIADUCK_HTTP_PORT": "1"}
    assert peers(environ) == {"reader": "http://127.0.0.1:1", "applier": "http://127.0.0.1:2"}
    assert own_port(8001, environ) == 1
    assert peers({}) == {}
    assert own_port(8001, {}) == 8001
