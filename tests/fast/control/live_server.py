"""The application of a ``ControlRig`` behind a real server, for those who must come over a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from services.control.http_connections import BoundedConnection
from tests.fast.control.rig import ControlRig
from tests.fast.waiting import eventually
from tests.servers.ports import free_port


@contextmanager
def served(rig: ControlRig, http: type[BoundedConnection] = BoundedConnection) -> Iterator[str]:
    """The server's address."""
    with serving(rig.http.app, http) as url:
        yield url


@contextmanager
def serving(app: Any, http: type[BoundedConnection] = BoundedConnection) -> Iterator[str]:
    port = free_port()
    settings = uvicorn.Config(
        app, port=port, http=http, ws="none", proxy_headers=False, log_config=None, access_log=False, lifespan="off",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
