"""Requests to an application in this process.

Starlette's own test client wants a second HTTP library; httpx, which we have, speaks ASGI itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from fastapi import FastAPI

Headers = Mapping[str, str]


class Http:
    """Each request runs on an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def get(self, path: str, params: Mapping[str, str] | None = None, headers: Headers | None = None) -> httpx.Response:
        return self.request("GET", path, params, headers)

    def put(self, path: str, body: object, headers: Headers | None = None) -> httpx.Response:
        return self.request("PUT", path, None, headers, json=body)

    def post(self, path: str, body: object = None, headers: Headers | None = None) -> httpx.Response:
        return self.request("POST", path, None, headers, **({} if body is None else {"json": body}))

    def delete(self, path: str, headers: Headers | None = None) -> httpx.Response:
        return self.request("DELETE", path, None, headers)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        **body: Any,
    ) -> httpx.Response:
        """``body``: ``json`` or ``content``, as httpx takes it."""
        with ThreadPoolExecutor(1) as thread:  # a browser's own event loop may run on this one
            return thread.submit(asyncio.run, self._request(method, path, params, headers, body)).result()

    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Headers | None,
        body: Mapping[str, Any],
    ) -> httpx.Response:
        # A server answers what the application could not; the transport would raise it here as well.
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", trust_env=False) as client:
            encoded = httpx.Headers(headers, encoding="utf-8")
            return await client.request(method, path, params=params, headers=encoded, **body)
