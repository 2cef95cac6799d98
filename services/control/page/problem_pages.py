"""Problems as pages: a browser shows what went wrong, and the login where a token is missing.

Plain ASGI around everything else, so that it does not matter which part of control refused the request.
"""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.page.templates import answer
from services.control.web.caller import ANONYMOUS
from services.control.web.problems import MEDIA_TYPE

LOGIN = "/login"
LONGEST_PLACE = 2_000


class ProblemPages:
    """Shows problem documents to people as pages; scripts get them as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_for_a_person(scope):
            await self._app(scope, receive, send)
            return
        held: list[Message] = []

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_problem(message):
                held.append(message)
            elif not held:
                await send(_leading_back(scope, message))
            else:
                held.append(message)
                if not message.get("more_body", False):
                    await _page(scope, held)(scope, receive, send)

        await self._app(scope, receive, sending)


def is_for_a_person(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "text/html" in headers.get("accept", "") and "authorization" not in headers and _is_of_the_page(scope)


def local(place: str | None) -> str:
    """A path on this server to go on at; ``/`` for whatever is none."""
    fits = place is not None and place.isprintable() and len(place) <= LONGEST_PLACE and "\\" not in place
    return place if place is not None and fits and place.startswith("/") and not place.startswith("//") else "/"


def _is_of_the_page(scope: Scope) -> bool:
    return not str(scope["path"]).startswith("/v1")


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _page(scope: Scope, held: list[Message]) -> Response:
    status = held[0]["status"]
    if status == 401:
        return RedirectResponse(_login(scope), 303)
    told = json.loads(b"".join(message.get("body", b"") for message in held[1:]))
    state = scope.setdefault("state", {})
    if "caller" not in state:  # the guard said no
        state["caller"], state["turned_away"] = ANONYMOUS, True
    page = answer(Request(scope), "trouble.html", status, problem=told, back=_stands_on(scope))
    kept = Headers(raw=held[0]["headers"])
    page.headers.update({name: kept[name] for name in ("allow", "retry-after") if name in kept})
    return page


def _leading_back(scope: Scope, message: Message) -> Message:
    """A user who is sent to the login returns to the page afterwards."""
    if message["type"] == "http.response.start" and message["status"] == 303 and scope["path"] != "/":
        headers = MutableHeaders(scope=message)
        if headers.get("location") == LOGIN and scope["path"] not in (LOGIN, "/logout"):
            headers["location"] = _login(scope)
    return message


def _login(scope: Scope) -> str:
    back = _came_from(scope)
    return LOGIN if back == "/" else f"{LOGIN}?next={quote(back, safe='')}"


def _came_from(scope: Scope) -> str:
    """The page of the request; for a form, the page that contains it."""
    if scope["method"] not in ("GET", "HEAD"):
        return _stands_on(scope)
    query = scope["query_string"].decode("latin-1")
    return local(scope["path"] + (f"?{query}" if query else ""))


def _stands_on(scope: Scope) -> str:
    """The page of ours that led here."""
    headers = Headers(scope=scope)
    try:
        stands = urlsplit(headers.get("referer", ""))
    except ValueError:  # no browser's
        return "/"
    is_here = stands.path == scope["path"] and scope["method"] in ("GET", "HEAD")
    if stands.netloc != headers.get("host") or is_here:
        return "/"
    return local(stands.path + (f"?{stands.query}" if stands.query else ""))
