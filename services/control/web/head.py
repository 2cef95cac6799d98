"""HEAD wherever GET is: the same answer without its body.

Plain ASGI, so that no route has to be written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """Asks for what GET would answer, and sends its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        told = asyncio.Event()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
            elif not told.is_set():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                told.set()

        await _until(told, asyncio.ensure_future(self._app({**scope, "method": "GET"}, receive, sending)))


async def _until(told: asyncio.Event, answering: asyncio.Future[Any]) -> None:
    """Wait for the headers; the body, which may be an endless stream of events, is not needed."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait({waiting, answering}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()  # raises what it raised
    finally:
        for each in (waiting, answering):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await each
