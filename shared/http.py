"""The small HTTP server of a reader or an applier: /metrics, /healthz, /readyz."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

import structlog

from shared.metrics import CONTENT_TYPE

log = structlog.get_logger(__name__)

PEERS = "VIADUCK_PEERS"
"""Under ``viaduck up``: ``name=url`` of each reader and applier, separated by commas."""

OWN_PORT = "VIADUCK_HTTP_PORT"
"""Under ``viaduck up``: the port that it chose for a reader or applier."""

Exposition = Callable[[], str]
"""The text of ``/metrics``."""

Readiness = Callable[[], Mapping[str, str | None]]
"""What a service depends on → None if it is fine, else what is wrong with it. Must answer at once."""


def peers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The services that run beside this one, by name: their base addresses."""
    pairs = (pair.partition("=") for pair in environ.get(PEERS, "").split(",") if pair)
    return {name: url for name, _, url in pairs}


def own_port(configured: int, environ: Mapping[str, str] = os.environ) -> int:
    """Where this reader or applier listens: as ``viaduck up`` told it, else as configured."""
    return int(environ.get(OWN_PORT, configured))


class ServiceServer:
    """Answers on a thread of its own from ``start`` to ``stop``; port 0 takes a free one, ``port`` tells which."""

    def __init__(self, host: str, port: int, exposition: Exposition, readiness: Readiness) -> None:
        """Raises ``OSError`` where the address is taken."""
        self._server = _Server((host, port), _handler(exposition, readiness))
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()
        log.info("listening", port=self.port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _handler(exposition: Exposition, readiness: Readiness) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pages: ClassVar[Mapping[str, Callable[[], _Page]]] = {
            "/metrics": lambda: _Page(200, CONTENT_TYPE, exposition()),
            "/healthz": lambda: _json(200, {"status": "ok"}),
            "/readyz": lambda: _ready(readiness()),
        }

    return Handler


class _Page:
    def __init__(self, status: int, content_type: str, text: str) -> None:
        self.status, self.content_type, self.body = status, content_type, text.encode()


def _json(status: int, value: object) -> _Page:
    return _Page(status, "application/json", json.dumps(value))


def _ready(checks: Mapping[str, str | None]) -> _Page:
    fine = not any(checks.values())
    return _json(200 if fine else 503, {"status": "ready" if fine else "not ready", "checks": dict(checks)})


class _Handler(BaseHTTPRequestHandler):
    """Answers GET from ``pages``; a request is never worth a log line."""

    pages: ClassVar[Mapping[str, Callable[[], _Page]]] = {}
    protocol_version = "HTTP/1.1"
    server_version = "viaduck"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        page = self.pages.get(urlsplit(self.path).path)
        self._answer(page() if page is not None else _json(404, {"status": "not found"}))

    def _answer(self, page: _Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:
        """The access log of health checks helps nobody."""
