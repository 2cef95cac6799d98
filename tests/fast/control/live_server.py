"""The application of a ``ControlRig`` behind a real server, for those who must come over a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from shared.runtime.http_connections import BoundedHttpConnection, server_settings
from shared.runtime.own_address import bind
from tests.fast.control.rig import ControlRig
from tests.fast.waiting import eventually


@contextmanager
def served(rig: ControlRig, http: type[BoundedHttpConnection] = BoundedHttpConnection) -> Iterator[str]:
    """The server's address."""
    with serving(rig.http.app, http) as url:
        yield url


@contextmanager
def serving(app: Any, http: type[BoundedHttpConnection] = BoundedHttpConnection) -> Iterator[str]:
    listening = bind("127.0.0.1", 0, "the test's port")
    port = listening.getsockname()[1]
    server = uvicorn.Server(server_settings(app, http, finish_within_s=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
