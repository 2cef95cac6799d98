"""``/login``: a token for a session. The browser keeps a cookie that no script can read, and never the token."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from services.control.page.problem_pages import local
from services.control.page.templates import answer
from services.control.web.guard import SESSION_FOR_S, Guard
from services.control.web.middleware import address_of, sessions_of
from services.control.web.problems import HttpProblem

router = APIRouter(include_in_schema=False)

FORM = "application/x-www-form-urlencoded"
MAX_FORM, MAX_FIELDS = 64_000, 50


@router.get("/login", response_class=HTMLResponse)
def ask(request: Request) -> HTMLResponse:
    return answer(request, "login.html", refused=None, next=local(request.query_params.get("next")))


@router.post("/login")
async def login(request: Request) -> Response:
    fields = await form(request)
    guard: Guard = request.app.state.guard
    token = fields.get("token", "").strip()
    session = guard.login(token, address_of(request.scope, guard))
    if session is None:
        refused = "This token is not valid, or too many wrong ones were sent from here."
        return answer(request, "login.html", 401, refused=refused, next=local(fields.get("next")))
    request.state.caller = guard.caller(token)
    response = RedirectResponse(local(fields.get("next")), 303)
    response.set_cookie(
        guard.session, session, int(SESSION_FOR_S), httponly=True, samesite="strict", secure=guard.is_secure
    )
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    guard: Guard = request.app.state.guard
    guard.logout(*sessions_of(request.scope, guard))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(guard.session, httponly=True, samesite="strict", secure=guard.is_secure)
    return response


async def form(request: Request) -> dict[str, str]:
    """A posted form, as browsers encode it. Raises ``HttpProblem`` for what no form of ours sends."""
    if not request.headers.get("content-type", FORM).startswith(FORM):
        raise HttpProblem("not_acceptable", "a form is needed", f"send {FORM}")
    body = await request.body()
    if len(body) > MAX_FORM:
        raise HttpProblem("too_large", f"the form is larger than {MAX_FORM:,} bytes")
    try:
        found = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise HttpProblem("too_large", f"the form has more than {MAX_FIELDS} fields") from None
    return {name: values[0] for name, values in found.items()}
