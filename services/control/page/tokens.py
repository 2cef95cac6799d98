"""``/tokens``: for holders of the scope ``admin``, as ``/v1/tokens`` is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.control.api.tokens import NewToken
from services.control.page.login import form
from services.control.page.templates import answer
from services.control.store.tokens import RANK
from services.control.web.caller import Caller
from services.control.web.context import CurrentCaller, require, tokens_of
from services.control.web.page_snapshot import ROWS
from services.control.web.paging import PageAfter, cut, read_id, write_id

router = APIRouter(include_in_schema=False)

TokenId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


@router.get("/tokens", response_class=HTMLResponse)
def show_tokens(request: Request, caller: CurrentCaller, after: PageAfter = None) -> HTMLResponse:
    return _page(request, caller, after=after or None)


@router.post("/tokens")
async def create(request: Request, caller: CurrentCaller) -> Response:
    fields = await form(request)
    return await run_in_threadpool(_create, request, caller, fields)


@router.post("/tokens/{token}/revoke")
def revoke(token: TokenId, request: Request, caller: CurrentCaller) -> Response:
    require(caller, "admin", "to revoke a token")
    if not tokens_of(request).revoke(token, datetime.now(UTC), caller.name):
        return _page(request, caller, refused="This token is no longer valid.", status=409)
    return RedirectResponse("/tokens", 303)


def _create(request: Request, caller: Caller, fields: Mapping[str, str]) -> HTMLResponse:
    require(caller, "admin", "to make a token")
    given = {"name": fields.get("name", ""), "scope": fields.get("scope", ""),
             "pipelines": fields.get("pipelines", "").split() or None}  # fmt: skip
    try:
        wanted = NewToken.model_validate(given)
    except ValidationError as error:
        refused = "; ".join(": ".join([*map(str, each["loc"]), each["msg"]]) for each in error.errors())
        return _page(request, caller, refused=refused, status=422)
    _, text = tokens_of(request).create(wanted.name, wanted.scope, datetime.now(UTC), caller.name, wanted.pipelines)
    return _page(request, caller, made=text)


def _page(
    request: Request, caller: Caller, after: str | None = None, refused: str | None = None, made: str | None = None,
    status: int = 200,
) -> HTMLResponse:  # fmt: skip
    require(caller, "admin", "to see tokens")
    tokens = tokens_of(request)
    found, following = cut(tokens.all(ROWS + 1, read_id(after, tokens.find)), ROWS, lambda token: write_id(token.id))
    return answer(request, "tokens.html", status, tokens=found, scopes=list(RANK), following=following,
                  refused=refused, made=made)  # fmt: skip
