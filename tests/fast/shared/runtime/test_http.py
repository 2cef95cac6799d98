from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
import uvicorn

from shared.contracts.errors import DependencyError
from shared.runtime.background import Heartbeat
from shared.runtime.http import ServiceConnection, ServiceServer
from shared.runtime.metrics import Metrics
from shared.runtime.metrics_access import MetricsAccess
from shared.runtime.own_address import bind, listen, own_port, peers
from tests.fast.waiting import eventually

CHECKS: dict[str, str | None] = {"broker": None, "spark": None}


def listening() -> socket.socket:
    return listen("127.0.0.1", 0, "reader.port")


@pytest.fixture
def checks() -> dict[str, str | None]:
    return dict(CHECKS)


@pytest.fixture
def client(checks: Mapping[str, str | None]) -> Iterator[httpx.Client]:
    server = ServiceServer(listening(), Metrics("p").exposition, lambda: checks)
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


def test_readiness_tells_how_old_the_last_look_at_each_source_is() -> None:
    looks: dict[str, float | None] = {"source": 12.3456}
    server = ServiceServer(listening(), Metrics("p").exposition, dict, looks=lambda: looks)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/readyz"
        assert httpx.get(url).json()["look_age_seconds"] == {"source": 12.346}
        looks["source"] = None
        assert httpx.get(url).json()["look_age_seconds"] == {"source": None}
    finally:
        server.stop()


def test_health_does_not_depend_on_dependencies(client: httpx.Client, checks: dict[str, str | None]) -> None:
    checks["broker"] = "away"
    assert client.get("/healthz").status_code == 200


@pytest.fixture
def stuck() -> Iterator[None]:
    """A loop of this process that has not turned for too long."""
    beat = Heartbeat("follower", within_s=-1.0)
    beat.begin()
    yield
    beat.end()


@pytest.mark.usefixtures("stuck")
def test_a_loop_that_does_not_turn_any_more_fails_health_and_is_named_by_readiness(client: httpx.Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (503, "stands still")
    assert list(answer.json()["threads"]) == ["follower"]
    assert "thread follower" in client.get("/readyz").json()["checks"]


def test_anything_else_is_not_found(client: httpx.Client) -> None:
    assert client.get("/v1/pipelines").status_code == 404
    assert client.get("/metrics?name=x").status_code == 200
    assert client.post("/metrics").status_code == 405


@pytest.mark.parametrize("begin", [bind, listen])
def test_a_taken_port_is_told_at_once(begin: Callable[[str, int, str], socket.socket]) -> None:
    with (
        listening() as first,
        pytest.raises(DependencyError, match="Address already in use") as told,
    ):
        begin("127.0.0.1", first.getsockname()[1], "reader.port")
    assert told.value.hint.startswith("choose another reader.port")


def test_an_address_that_is_not_of_this_machine_is_told_at_once() -> None:
    with pytest.raises(DependencyError, match=r"can't listen on 192\.0\.2\.1"):
        listen("192.0.2.1", 0, "reader.port")


def test_peers_and_the_own_port_come_from_the_environment() -> None:
    environ = {"VIADUCK_PEERS": "reader=http://127.0.0.1:1,applier=http://127.0.0.1:2", "VIADUCK_HTTP_PORT": "1"}
    assert peers(environ) == {"reader": "http://127.0.0.1:1", "applier": "http://127.0.0.1:2"}
    assert own_port(8001, environ) == 1
    assert peers({}) == {}
    assert own_port(8001, {}) == 8001


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[int]:
    server = ServiceServer(listening(), Metrics("p").exposition, dict, **settings)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


class Impatient(ServiceConnection):
    head_within_s = 0.5
    look_every_s = 0.1


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has let go of it, within two seconds."""
    connection.settimeout(2)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_silent_connections_are_let_go_of() -> None:
    with serving(connection=Impatient) as port, socket.create_connection(("127.0.0.1", port)) as silent:
        assert is_closed(silent)


def test_a_request_that_comes_byte_by_byte_is_not_waited_for() -> None:
    with serving(connection=Impatient) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 5:
                slow.send(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_a_connection_that_asks_again_and_again_stays() -> None:
    with (
        serving(connection=Impatient) as port,
        contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=5)) as busy,
    ):
        busy.connect()
        busy.auto_open = False
        for _ in range(6):
            busy.request("GET", "/healthz")
            answer = busy.getresponse()
            assert (answer.status, json.loads(answer.read())) == (200, {"status": "ok"})
            time.sleep(0.2)


def test_many_connections_take_few_threads_and_shut_nobody_out() -> None:
    with serving() as port, ExitStack() as opened:
        before = threading.active_count()
        for _ in range(4 * ServiceConnection.most):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
        eventually(lambda: threading.active_count() - before <= 2)


PROXIED = [{"X-Forwarded-For": "10.0.0.1"}, {"Via": "1.1 x"}, {"Host": "viaduck.example"}, {"X-Real-IP": "10.0.0.1"}]


@pytest.mark.parametrize("headers", PROXIED)
def test_metrics_name_tenants_and_are_told_to_this_machine_alone(headers: dict[str, str]) -> None:
    with serving(scraping=MetricsAccess("local", "s3cret")) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        assert httpx.get(url).status_code == 200
        assert httpx.get(url, headers=headers).status_code == 401
        assert httpx.get(url, headers={**headers, "Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url, headers={**headers, "Authorization": "Bearer s3cret"}).status_code == 200
    with serving(scraping=MetricsAccess("open")) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers).status_code == 200


def test_old_http_is_a_proxy_s() -> None:
    """nginx adds nothing unless it is told to, and speaks HTTP/1.0 then."""
    with serving() as port, socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(f"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert b" 401 " in plain.recv(4_000).split(b"\r\n")[0]


def test_head_is_answered_wherever_get_is(client: httpx.Client) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_the_server_begins_again_after_an_error_nobody_thought_of(
    checks: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [RuntimeError("can't start new thread")]
    tick = uvicorn.Server.on_tick

    async def fail_once(server: uvicorn.Server, counter: int) -> bool:
        if failures:
            raise failures.pop()
        return await tick(server, counter)

    monkeypatch.setattr(uvicorn.Server, "on_tick", fail_once)
    server = ServiceServer(listening(), Metrics("p").exposition, lambda: checks)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/readyz"
        eventually(lambda: not failures)
        eventually(lambda: httpx.get(url).json()["checks"].get("thread http") is not None)
        assert httpx.get(url.replace("readyz", "healthz")).status_code == 200
    finally:
        server.stop()


def test_a_page_that_fails_is_an_error_of_its_request_alone() -> None:
    def broken() -> str:
        raise RuntimeError("no text today")

    server = ServiceServer(listening(), broken, dict)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/metrics").status_code == 500
        assert httpx.get(f"{url}/readyz").status_code == 200
    finally:
        server.stop()


def test_pages_that_hang_do_not_keep_a_probe_of_health_from_its_answer() -> None:
    """Each hanging page occupies one of the threads that pages share, also after its client has gone."""
    released = threading.Event()

    def hang() -> str:
        released.wait(30)
        return ""

    server = ServiceServer(listening(), hang, dict)
    server.start()
    try:
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", server.port)) as impatient:
                impatient.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert httpx.get(f"http://127.0.0.1:{server.port}/healthz", timeout=5).status_code == 200
    finally:
        released.set()
        server.stop()
