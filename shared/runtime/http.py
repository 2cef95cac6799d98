"""The small HTTP server of a reader or an applier: /metrics, /healthz, /readyz."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import structlog

from shared.runtime import background
from shared.runtime.background import Background
from shared.runtime.loopback import is_brought
from shared.runtime.metrics import CONTENT_TYPE
from shared.runtime.metrics_access import MetricsAccess

log = structlog.get_logger(__name__)

PEERS = "VIADUCK_PEERS"
"""Under ``viaduck up``: ``name=url`` of each reader and applier, separated by commas."""

OWN_PORT = "VIADUCK_HTTP_PORT"
"""Under ``viaduck up``: the port that it chose for a reader or applier."""

Exposition = Callable[[], str]
"""The text of ``/metrics``."""

LOCAL_SCRAPING = MetricsAccess()

Looks = Callable[[], Mapping[str, float | None]]
"""What a service reads → how many seconds ago it last did; None where it never has. Must answer at once."""

Readiness = Callable[[], Mapping[str, str | None]]
"""What a service depends on → None if it is fine, else what is wrong with it. Must answer at once."""


def peers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The services that run beside this one, by name: their base addresses."""
    pairs = (pair.partition("=") for pair in environ.get(PEERS, "").split(",") if pair)
    return {name: url for name, _, url in pairs}


def own_port(configured: int, environ: Mapping[str, str] = os.environ) -> int:
    """Where this reader or applier listens: as ``viaduck up`` told it, else as configured."""
    return int(environ.get(OWN_PORT, configured))


MOST_CONNECTIONS = 32
"""Each takes a thread. A new connection beyond that replaces the longest silent one."""

LISTEN_S = 0.5
"""How long the server waits for a connection before it looks whether it is to stop."""

REQUEST_WITHIN_S = 10.0
"""From the beginning of a connection, or the end of the answer before."""


class ServiceServer:
    """Answers on a thread of its own from ``start`` to ``stop``; port 0 takes a free one, ``port`` tells which."""

    def __init__(
        self,
        host: str,
        port: int,
        exposition: Exposition,
        readiness: Readiness,
        scraping: MetricsAccess = LOCAL_SCRAPING,
        within_s: float = REQUEST_WITHIN_S,
        looks: Looks | None = None,
    ) -> None:
        """``scraping``: who may read the exposition. Raises ``OSError`` where the address is taken."""
        self._server = _Server((host, port), _handler(exposition, readiness, scraping, looks), within_s)
        self._loop = Background("http", self._serve)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._loop.start()
        log.info("listening", port=self.port)

    def stop(self) -> None:
        self._loop.stop(REQUEST_WITHIN_S)
        self._server.server_close()

    def _serve(self, loop: Background) -> None:
        while not loop.stopped.is_set():
            loop.turned()
            self._server.handle_request()
            self._server.service_actions()


class _Server(ThreadingHTTPServer):
    """Ends connections that say nothing, or say it too slowly: a time for a whole request, not for each byte."""

    daemon_threads = True
    request_queue_size = 64
    timeout = LISTEN_S

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], within_s: float = REQUEST_WITHIN_S
    ) -> None:
        self._within_s = within_s
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.await_request(request)
        with self._lock:
            surplus = sorted(self._open, key=self._open.__getitem__)[: max(len(self._open) - MOST_CONNECTIONS, 0)]
        self._end(surplus)
        super().process_request(request, client_address)

    def await_request(self, connection: socket.socket) -> None:
        """A whole request must come from now on."""
        with self._lock:
            self._open[connection] = time.monotonic() + self._within_s

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's
        """A client that disconnected is no error; the library would print it past the log."""
        if not isinstance(sys.exception(), OSError):
            log.exception("request_failed")

    def service_actions(self) -> None:
        """Called after each request, and each `LISTEN_S` without one."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, until in self._open.items() if until <= now]
        self._end(late)

    def _end(self, connections: Iterable[socket.socket]) -> None:
        """Its thread reads the end then, and goes."""
        for connection in connections:
            with contextlib.suppress(OSError):  # it has just ended by itself
                connection.shutdown(socket.SHUT_RDWR)


def _handler(
    exposition: Exposition, readiness: Readiness, scraping: MetricsAccess, looks: Looks | None
) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        rule: ClassVar[MetricsAccess] = scraping
        pages: ClassVar[Mapping[str, Callable[[], _Page]]] = {
            "/metrics": lambda: _Page(200, CONTENT_TYPE, exposition()),
            "/healthz": _healthy,
            "/readyz": lambda: _ready({**readiness(), **background.problems()}, looks),
        }

    return Handler


class _Page:
    def __init__(self, status: int, content_type: str, text: str) -> None:
        self.status = status
        self.content_type = content_type
        self.body = text.encode()


def _json(status: int, value: object) -> _Page:
    return _Page(status, "application/json", json.dumps(value))


def _healthy() -> _Page:
    """Fails if a loop of the process makes no progress, so that the supervisor of the process restarts it."""
    still = background.standing_still()
    return _json(503, {"status": "stands still", "threads": still}) if still else _json(200, {"status": "ok"})


def _ready(checks: Mapping[str, str | None], looks: Looks | None) -> _Page:
    fine = not any(checks.values())
    said: dict[str, object] = {"status": "ready" if fine else "not ready", "checks": dict(checks)}
    if looks is not None:
        said["look_age_seconds"] = {name: None if age is None else round(age, 3) for name, age in looks().items()}
    return _json(200 if fine else 503, said)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD from ``pages``; a request is never worth a log line."""

    rule: ClassVar[MetricsAccess] = LOCAL_SCRAPING
    pages: ClassVar[Mapping[str, Callable[[], _Page]]] = {}
    protocol_version = "HTTP/1.1"
    server_version = "viaduck"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(self._found())

    def do_HEAD(self) -> None:
        self._answer(self._found(), body=False)

    def _found(self) -> _Page:
        path = self.path.partition("?")[0]
        if path == "/metrics" and not self._may_scrape():
            return _json(
                401, {"status": "a bearer token is needed: the one of server.token_env, or see server.metrics"}
            )
        page = self.pages.get(path)
        return page() if page is not None else _json(404, {"status": "not found"})

    def _may_scrape(self) -> bool:
        brought = is_brought(self.headers, self.request_version.removeprefix("HTTP/"))
        if self.rule.is_open_to(self.client_address[0], self.headers.get("Host", ""), brought=brought):
            return True
        return self.rule.knows(self.headers.get("Authorization"))

    def _answer(self, page: _Page, *, body: bool = True) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(page.body)
        if isinstance(self.server, _Server):
            self.server.await_request(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        """An access log of health checks is useless."""
