"""What stands before every route: who asks, how much they send, and what browsers must do with the answer.

Plain ASGI, because a stream of events must pass through as it is made.
"""

from __future__ import annotations

from http.cookies import SimpleCookie

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.api.guard import SESSION, Asked, Asker, Denied, Guard
from services.control.api.problems import document
from shared.errors import DependencyError

MAX_BODY = 1_000_000
MAX_IMPORT = 32_000_000

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise."""


class GuardMiddleware:
    """Stands before everything, so that a path which does not exist tells a stranger nothing either."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sending = _with_headers(send)
        try:
            verdict = await _judged(scope["app"].state.guard, asked_of(scope))
        except DependencyError as error:
            answer = document("unavailable", str(error), error.hint, headers={"Retry-After": "5"})
            await answer(scope, receive, sending)
            return
        if isinstance(verdict, Denied) and verdict.kind == "unauthorized" and _is_page(scope):
            await RedirectResponse("/login", 303)(scope, receive, sending)
            return
        if isinstance(verdict, Denied):
            answer = document(verdict.kind, verdict.detail, headers=verdict.headers)
            await answer(scope, receive, sending)
            return
        scope.setdefault("state", {})["asker"] = verdict
        limit = MAX_IMPORT if scope["path"].endswith("destinations:import") else MAX_BODY
        await self._app(scope, _limited(scope, receive, limit), sending)


async def _judged(guard: Guard, asked: Asked) -> Asker | Denied:
    """On a thread of its own only where the registry has to be asked."""
    return guard.judge(asked) if guard.quick else await run_in_threadpool(guard.judge, asked)


def _is_page(scope: Scope) -> bool:
    """Whether a person asks for a page with a browser, and not a script for data."""
    headers = Headers(scope=scope)
    looks = scope["method"] == "GET" and not scope["path"].startswith("/v1")
    return looks and "text/html" in headers.get("accept", "") and "authorization" not in headers


def asked_of(scope: Scope) -> Asked:
    headers = Headers(scope=scope)
    cookie: SimpleCookie = SimpleCookie()
    cookie.load(headers.get("cookie", ""))
    return Asked(
        method=scope["method"],
        path=scope["path"],
        host=headers.get("host", ""),
        authorization=headers.get("authorization"),
        session=cookie[SESSION].value if SESSION in cookie else None,
        origin=headers.get("origin"),
        site=headers.get("sec-fetch-site"),
        address=scope["client"][0] if scope.get("client") else "",
    )


def _limited(scope: Scope, receive: Receive, limit: int) -> Receive:
    """``receive`` up to ``limit`` bytes, whatever the header says of the length."""
    said = Headers(scope=scope).get("content-length", "0")
    taken = limit + 1 if said.isdecimal() and int(said) > limit else 0

    async def limited() -> Message:
        nonlocal taken
        if taken > limit:
            raise HTTPException(413, f"the body is larger than {limit:,} bytes")
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, f"the body is larger than {limit:,} bytes")
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
