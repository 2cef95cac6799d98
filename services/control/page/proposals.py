"""``/proposals``, of the only pipeline or of the named one: routing values without a destination, and two buttons."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from services.control.api.proposals import PROPOSAL
from services.control.operations.discovery import Discovery
from services.control.page.templates import answer
from services.control.page.urls import base, handle_here
from services.control.store.proposals import State
from services.control.web.context import CurrentCaller
from services.control.web.page_snapshot import ROWS
from services.control.web.paging import page
from services.control.web.problems import ANSWERED, HttpProblem
from shared.config.config_errors import quoted

router = APIRouter(include_in_schema=False)

ProposalId = Annotated[str, Path(pattern=PROPOSAL)]
STATES: tuple[State, ...] = ("open", "dismissed")


@router.get("/proposals", response_class=HTMLResponse)
def show_proposals(
    request: Request,
    state: Annotated[str, Query(max_length=20)] = "open",
    after: Annotated[str | None, Query(max_length=1_000)] = None,
) -> HTMLResponse:
    return _list(request, next((each for each in STATES if each == state), "open"), after or None)


@router.post("/proposals/{proposal}/{action}")
async def answer_one(proposal: ProposalId, action: str, request: Request, caller: CurrentCaller) -> Response:
    try:
        place = await run_in_threadpool(_act, _discovery(request), proposal, action, caller.name)
    except ANSWERED as error:
        refused = f"{error} {error.hint}".rstrip()
    else:
        handle_here(request).snapshots.forget()
        return RedirectResponse(f"{base(request)}{place}", 303)
    return await run_in_threadpool(_list, request, "open", None, refused)


def _act(discovery: Discovery, proposal: str, action: str, author: str) -> str:
    """Where to go on, below the pipeline's own pages."""
    if action == "accept":
        return f"/destinations/{discovery.accept(proposal, author).held.id}"
    if action == "dismiss":
        discovery.dismiss(proposal, author)
        return "/proposals"
    raise HttpProblem("not_found", f"there is no action {action[:40]}")


def _list(request: Request, state: State, after: str | None, refused: str | None = None) -> HTMLResponse:
    discovery = _discovery(request)
    found = {each.id: each for each in discovery.waiting() if each.state == state}
    keys, following = page([(-float(each.sighting.rows), each.id) for each in found.values()], ROWS, after)
    shown = [
        {
            "it": found[name],
            "value": quoted(found[name].sighting.value),
            "destination": discovery.suggestion(found[name]),
        }
        for _, name in keys
    ]
    status = 200 if refused is None else 409
    return answer(request, "proposals.html", status, proposals=shown, state=state, states=STATES, following=following,
                  refused=refused, base=base(request))  # fmt: skip


def _discovery(request: Request) -> Discovery:
    found = handle_here(request).discovery
    if found is None:
        raise HttpProblem("not_found", "this control has no proposals")
    return found
