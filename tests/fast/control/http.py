"""Requests to an application in this process.

Starlette's own test client wants a second HTTP library; httpx, which we have, speaks ASGI itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
from fastapi import FastAPI

Headers = Mapping[str, str]


class Http:
    """Each request runs on an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def get(self, path: str, params: Mapping[str, str] | None = None, headers: Headers | None = None) -> httpx.Response:
        return self.request("GET", path, params, headers)

    def request(
        self, method: str, path: str, params: Mapping[str, str] | None = None, headers: Headers | None = None
    ) -> httpx.Response:
        return asyncio.run(self._request(method, path, params, headers))

    async def _request(
        self, method: str, path: str, params: Mapping[str, str] | None, headers: Headers | None
    ) -> httpx.Response:
        # A server answers what the application could not; the transport would raise it here as well.
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, params=params, headers=httpx.Headers(headers, encoding="utf-8"))
