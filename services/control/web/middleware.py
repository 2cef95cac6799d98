"""What stands before every route: who asks, how much they send, and what browsers must do with the answer.

Plain ASGI, because a stream of events must pass through as it is made.
"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.store.access_audit import AccessAudit, Deed
from services.control.web.caller import ANONYMOUS, READING, Caller, Denied, GuardedRequest
from services.control.web.guard import Guard
from services.control.web.problems import document
from shared.contracts.errors import DependencyError
from shared.runtime.loopback import is_brought, is_loopback

MOST_SESSIONS = 8
LONGEST_ADDRESS, LONGEST_PATH = 64, 200
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
    """The outermost layer, so that a path that does not exist reveals nothing to an unauthorized client either."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guard: Guard = scope["app"].state.guard
        asked = asked_of(scope, guard)
        sending = _noting(scope, asked, _with_headers(send))
        try:
            verdict = guard.judge(asked)
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
        scope.setdefault("state", {})["caller"] = verdict
        limit = MAX_IMPORT if scope["path"].endswith("destinations:import") else MAX_BODY
        await self._app(scope, _limited(scope, receive, limit), sending)


def is_still_allowed(request: Request) -> bool:
    """Whether the client of a running answer would be admitted with the same rights now."""
    guard: Guard = request.app.state.guard
    try:
        return bool(guard.judge(asked_of(request.scope, guard)) == request.state.caller)
    except DependencyError:
        return False


def _is_page(scope: Scope) -> bool:
    """Whether a person asks for a page with a browser, and not a script for data."""
    headers = Headers(scope=scope)
    looks = scope["method"] == "GET" and not scope["path"].startswith("/v1")
    return looks and "text/html" in headers.get("accept", "") and "authorization" not in headers


def asked_of(scope: Scope, guard: Guard) -> GuardedRequest:
    headers = Headers(scope=scope)
    return GuardedRequest(
        method=scope["method"],
        path=scope["path"],
        host=headers.get("host", ""),
        authorization=headers.get("authorization"),
        sessions=sessions_of(scope, guard),
        origin=headers.get("origin"),
        site=headers.get("sec-fetch-site"),
        address=address_of(scope, guard),
        brought=is_brought(headers.keys(), scope.get("http_version", "")),
    )


def sessions_of(scope: Scope, guard: Guard) -> tuple[str, ...]:
    """What a browser sends under our cookie's name; what others on this host have given it is not looked at."""
    sent = "; ".join(Headers(scope=scope).getlist("cookie"))
    parts = (cookie_parser(part) for part in sent.split(";"))
    return tuple(each[guard.session] for each in parts if guard.session in each)[:MOST_SESSIONS]


def address_of(scope: Scope, guard: Guard) -> str:
    """Who asks; where a proxy is declared and is on this machine, whom it names last."""
    address = str(scope["client"][0]) if scope.get("client") else ""
    named = Headers(scope=scope).getlist("x-forwarded-for")
    if guard.public_url is None or not named or not is_loopback(address):
        return address
    return named[-1].rpartition(",")[2].strip()[:LONGEST_ADDRESS]


def _noting(scope: Scope, asked: GuardedRequest, send: Send) -> Send:
    """``send``, with an entry in the audit trail where the answer deserves one."""
    incidents: AccessAudit | None = scope["app"].state.sources.incidents

    async def noting(message: Message) -> None:
        if incidents is not None and message["type"] == "http.response.start":
            deed = _deed(asked, message["status"])
            if deed is not None:
                incidents.note(deed, _author(scope), _told(asked, message["status"]))
        await send(message)

    return noting


def _deed(asked: GuardedRequest, status: int) -> Deed | None:
    if asked.path == "/login":
        return {303: "logged_in", 401: "login_failed"}.get(status) if asked.method == "POST" else None  # type: ignore[return-value]
    if status in (401, 429) and asked.authorization is not None:
        return "token_refused"
    if asked.method in READING:
        return None
    if asked.path.endswith("validate"):
        return "validated"
    return "refused" if status in (401, 403, 409, 429) else None


def _author(scope: Scope) -> str:
    caller = scope.get("state", {}).get("caller", ANONYMOUS)
    return caller.name if isinstance(caller, Caller) else ANONYMOUS.name


def _told(asked: GuardedRequest, status: int) -> dict[str, Any]:
    return {"method": asked.method, "path": asked.path[:LONGEST_PATH], "status": status, "address": asked.address}


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
