"""Requests as bytes to an application in this process: such that no client of good manners would send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI

WITHIN_S = 20.0
EVENTS = "text/event-stream"

Message = MutableMapping[str, Any]


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


def routes(app: FastAPI) -> Iterator[Any]:
    """Every route of the application with its whole path, those of included routers too."""
    for each in app.routes:
        if hasattr(each, "effective_route_contexts"):
            yield from each.effective_route_contexts()
        else:
            yield each


def send(
    app: FastAPI, method: str, path: str, query: str = "", headers: Mapping[str, bytes] | None = None, body: bytes = b""
) -> Answer:
    """``path`` and ``query`` are percent-encoded. An event stream is read up to its first event."""
    given = {"host": b"127.0.0.1", **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"), "raw_path": path.encode(),
        "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80),
        "headers": [(name.lower().encode(), value) for name, value in given.items()],
    }  # fmt: skip
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _answer(app, scope, body)).result()


async def _answer(app: FastAPI, scope: dict[str, Any], body: bytes) -> Answer:
    answer, heard, done = Answer(), asyncio.Event(), False

    async def receive() -> Message:
        nonlocal done
        if not done:
            done = True
            return {"type": "http.request", "body": body, "more_body": False}
        await heard.wait()
        return {"type": "http.disconnect"}

    async def take(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")
            if (answer.content_type == EVENTS and answer.body) or not message.get("more_body", False):
                heard.set()

    serving = asyncio.create_task(app(scope, receive, take))
    await asyncio.wait({serving, asyncio.create_task(heard.wait())}, timeout=WITHIN_S, return_when="FIRST_COMPLETED")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert answer.status, f"no answer to {scope['method']} {scope['path'][:100]!r}"
    return answer
