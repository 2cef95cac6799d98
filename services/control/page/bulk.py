"""``/all/{action}``: the same action for all destinations that fit a filter, after a look at how many those are."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from services.control.page.live import MEANS, CurrentAsked
from services.control.page.login import form
from services.control.page.templates import answer
from services.control.page.urls import base, handle_here, pipeline_here, service_here
from services.control.web.context import CurrentCaller
from services.control.web.page_snapshot import DestinationQuery
from services.control.web.problems import HttpProblem

router = APIRouter(include_in_schema=False)

ACTIONS = ("pause", "resume", "stop", "restart")
NAMED = 20
"""Of those that are meant so many are shown."""


@router.get("/all/{action}", response_class=HTMLResponse)
def confirm(action: str, request: Request, asked: CurrentAsked) -> HTMLResponse:
    return _confirm(request, _known(action), asked)


@router.post("/all/{action}")
async def act(action: str, request: Request, asked: CurrentAsked, caller: CurrentCaller) -> Response:
    """Done only while the same destinations match as the user has seen."""
    seen, wanted = (await form(request)).get("seen", ""), _wanted(request, asked)
    if seen != _digest(wanted):
        return await run_in_threadpool(_confirm, request, _known(action), asked, seen)
    await run_in_threadpool(service_here(request).act_all, wanted, _known(action), caller.name)
    handle_here(request).snapshots.forget()
    return RedirectResponse(f"{base(request)}/", 303)


def _known(action: str) -> str:
    if action not in ACTIONS:
        raise HttpProblem("not_found", f"there is no action {action[:40]} for many at once")
    return action


def _wanted(request: Request, asked: DestinationQuery) -> list[str]:
    return sorted(handle_here(request).snapshots.look().wanted(asked))


def _digest(names: list[str]) -> str:
    """Equal for the same destinations, of which there may be thousands."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _confirm(request: Request, action: str, asked: DestinationQuery, seen: str | None = None) -> HTMLResponse:
    wanted = _wanted(request, asked)
    return answer(request, "bulk.html", 200 if seen is None else 409, base=base(request), action=action,
                  means=MEANS[action], asked=asked, named=wanted[:NAMED], count=len(wanted), changed=seen is not None,
                  seen=_digest(wanted), query=asked.query(), pipeline=pipeline_here(request))  # fmt: skip
