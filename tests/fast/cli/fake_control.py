"""A control service that says what a test wants, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit


def status(id: str, state: str = "running", **other: Any) -> dict[str, Any]:
    """A destination's status with all keys of docs/reference/rest-api.md."""
    plain = {"id": id, "pipeline": "events", "routing_value": id, "state": state, "generation": 1, "position": 1500,
             "known_through": 1700, "source_snapshot": 1700, "lag_snapshots": 0, "lag_seconds": 0.0,
             "rows_applied": 7, "last_applied_at": None, "managed_by": "file", "error": None}  # fmt: skip
    return {**plain, **other}


class FakeControl:
    """Pages of two, so that a client which forgets to ask for the next page is noticed."""

    def __init__(self, destinations: list[dict[str, Any]]) -> None:
        self.destinations = destinations
        self.tokens: list[str | None] = []
        self.url = ""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        match path.strip("/").split("/"):
            case ["v1", "pipelines"]:
                return 200, {"items": [{"name": "events"}], "next": None}
            case ["v1", "pipelines", "events"]:
                return 200, {"name": "events", "source_snapshot": 1700, "settled": True, "frontier": {"at": None}}
            case ["v1", "pipelines", "events", "destinations"]:
                return 200, self._page(int(query.get("after", ["0"])[0]))
            case ["v1", "pipelines", "events", "destinations", id]:
                return next(((200, d) for d in self.destinations if d["id"] == id), self._nobody(id))
        return 404, {"title": "not found", "status": 404}

    def _page(self, first: int) -> dict[str, Any]:
        following = first + 2
        more = following < len(self.destinations)
        return {"items": self.destinations[first:following], "next": str(following) if more else None}

    @staticmethod
    def _nobody(id: str) -> tuple[int, dict[str, Any]]:
        return 404, {"title": "not found", "detail": f"no destination {id}", "hint": "see the list", "status": 404}


@contextmanager
def serving(control: FakeControl) -> Iterator[FakeControl]:
    class Handler(BaseHTTPRequestHandler):
        served: ClassVar[FakeControl] = control

        def do_GET(self) -> None:
            self.served.tokens.append(self.headers.get("Authorization"))
            url = urlsplit(self.path)
            code, body = self.served.answer(url.path, parse_qs(url.query))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    control.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield control
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
