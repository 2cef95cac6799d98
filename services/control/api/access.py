"""Who may ask what. Beyond loopback only with a token; health and metrics always."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp

from services.control.api.problems import document

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Denied:
    status: int
    detail: str
    hint: str


@dataclass(frozen=True)
class Access:
    """The rules of one server. ``token`` None: none is configured."""

    loopback: bool
    token: str | None = None

    def denies(self, method: str, path: str, authorization: str | None) -> Denied | None:
        if path in OPEN or (self.loopback and (self.token is None or method in READING)):
            return None
        if self.token is None:
            return Denied(
                403,
                "this control listens beyond loopback and has no token: only health and metrics are served",
                "set server.token_env, or let server.host be 127.0.0.1",
            )
        if not _is_bearer(authorization, self.token):
            return Denied(401, "a bearer token is needed", "send Authorization: Bearer … with control's token")
        return None


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_bearer(authorization: str | None, token: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


class AccessMiddleware(BaseHTTPMiddleware):
    """Stands before everything, so that a path which does not exist tells a stranger nothing either."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        super().__init__(app)
        self._access = access

    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        denied = self._access.denies(request.method, request.url.path, request.headers.get("authorization"))
        if denied is None:
            return await call_next(request)
        response = document(denied.status, denied.detail, denied.hint)
        if denied.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response
