"""``/login``: a token for a session. The browser keeps a cookie that no script can read, and never the token."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from services.control.api.guard import SESSION, SESSION_FOR_S, Guard
from services.control.page.templates import answer
from services.control.page.trouble import local

router = APIRouter(include_in_schema=False)


@router.get("/login", response_class=HTMLResponse)
def ask(request: Request, next: str | None = None) -> HTMLResponse:
    return answer(request, "login.html", refused=None, next=local(next))


@router.post("/login")
async def login(request: Request) -> Response:
    fields = await form(request)
    guard: Guard = request.app.state.guard
    address = request.client.host if request.client else ""
    session = guard.login(fields.get("token", ""), address)
    if session is None:
        refused = "That is no valid token, or too many wrong ones came from here."
        return answer(request, "login.html", 401, refused=refused, next=local(fields.get("next")))
    response = RedirectResponse(local(fields.get("next")), 303)
    secure: Any = request.url.scheme == "https"
    response.set_cookie(SESSION, session, int(SESSION_FOR_S), httponly=True, samesite="strict", secure=secure)
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    guard: Guard = request.app.state.guard
    guard.logout(request.cookies.get(SESSION))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(SESSION)
    return response


async def form(request: Request) -> dict[str, str]:
    """A posted form, as browsers encode it."""
    body = (await request.body()).decode(errors="replace")
    return {name: values[0] for name, values in parse_qs(body, keep_blank_values=True, max_num_fields=50).items()}
