"""The small HTTP server of a reader or an applier: /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shared.runtime import background
from shared.runtime.background import Background
from shared.runtime.http_connections import BoundedHttpConnection, server_settings
from shared.runtime.loopback import is_brought
from shared.runtime.metrics import CONTENT_TYPE
from shared.runtime.metrics_access import MetricsAccess

log = structlog.get_logger(__name__)

Exposition = Callable[[], str]
"""The text of ``/metrics``."""

LOCAL_SCRAPING = MetricsAccess()

Looks = Callable[[], Mapping[str, float | None]]
"""What a service reads → how many seconds ago it last did; None where it never has. Must answer at once."""

Readiness = Callable[[], Mapping[str, str | None]]
"""What a service depends on → None if it is fine, else what is wrong with it. Must answer at once."""

TICK_S = 0.5
FINISH_REQUESTS_S = 1
END_WITHIN_S = 5.0
"""For the server's thread."""

HEADERS = [("X-Content-Type-Options", "nosniff")]
TOKEN_NEEDED = "a bearer token is needed: the one of server.token_env, or see server.metrics"  # noqa: S105 - a sentence


class ServiceConnection(BoundedHttpConnection):
    """A request without a body, and a short answer, on a connection that a probe or Prometheus keeps."""

    head_within_s, body_within_s, take_within_s = 10.0, 10.0, 30.0
    most = 32


class ServiceServer:
    """Answers on a thread of its own from ``start`` to ``stop``, which closes the socket."""

    def __init__(
        self,
        listening: socket.socket,
        exposition: Exposition,
        readiness: Readiness,
        scraping: MetricsAccess = LOCAL_SCRAPING,
        looks: Looks | None = None,
        connection: type[BoundedHttpConnection] = ServiceConnection,
    ) -> None:
        """``scraping``: who may read the exposition."""
        self._socket = listening
        self._app = _application(exposition, readiness, scraping, looks)
        self._connection = connection
        self._loop = Background("http", self._serve)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._loop.start()
        log.info("listening", port=self.port)

    def stop(self) -> None:
        self._loop.stop(END_WITHIN_S)
        self._socket.close()

    def _serve(self, loop: Background) -> None:
        config = server_settings(self._app, self._connection, FINISH_REQUESTS_S, HEADERS)
        _Server(config, loop).run([self._socket])


class _Server(uvicorn.Server):
    """Lives and ends with its thread's loop."""

    def __init__(self, config: uvicorn.Config, loop: Background) -> None:
        super().__init__(config)
        self._loop = loop

    async def main_loop(self) -> None:
        """Rarer than uvicorn's ten times a second, which is most of what an idle service would cost."""
        while not self._loop.stopped.is_set():
            self._loop.turned()
            await self.on_tick(0)
            await asyncio.sleep(TICK_S)


def _application(
    exposition: Exposition, readiness: Readiness, scraping: MetricsAccess, looks: Looks | None
) -> Starlette:
    def metrics(request: Request) -> Response:
        if not _may_scrape(request, scraping):
            return JSONResponse({"status": TOKEN_NEEDED}, 401)
        return Response(exposition(), media_type=CONTENT_TYPE)

    def readyz(_: Request) -> Response:
        return _ready({**readiness(), **background.problems()}, looks)

    routes = [Route("/metrics", metrics), Route("/healthz", _healthy), Route("/readyz", readyz)]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused})


async def _healthy(_: Request) -> Response:
    """Fails if a loop of the process makes no progress, so that the supervisor of the process restarts it.

    On the event loop itself: pages that hang may occupy every thread.
    """
    still = background.standing_still()
    return JSONResponse({"status": "stands still", "threads": still}, 503) if still else JSONResponse({"status": "ok"})


def _ready(checks: Mapping[str, str | None], looks: Looks | None) -> Response:
    fine = not any(checks.values())
    said: dict[str, object] = {"status": "ready" if fine else "not ready", "checks": dict(checks)}
    if looks is not None:
        said["look_age_seconds"] = {name: None if age is None else round(age, 3) for name, age in looks().items()}
    return JSONResponse(said, 200 if fine else 503)


def _refused(_: Request, error: Exception) -> Response:
    """No such page, or a method that it does not have."""
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse({"status": error.detail.lower()}, error.status_code, error.headers)


def _may_scrape(request: Request, scraping: MetricsAccess) -> bool:
    brought = is_brought(request.headers, request.scope["http_version"])
    address = request.client.host if request.client else ""
    if scraping.is_open_to(address, request.headers.get("host", ""), brought=brought):
        return True
    return scraping.knows(request.headers.get("authorization"))
