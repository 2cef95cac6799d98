"""``/deployment/audit``: what concerns the deployment and no pipeline; for the scope ``admin``, as ``/v1/audit`` is."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from services.control.page.templates import answer
from services.control.web.context import CurrentCaller, require, sources_of
from services.control.web.page_snapshot import ROWS
from services.control.web.paging import PageAfter, cut, read_number, write_number
from services.control.web.problems import HttpProblem

router = APIRouter(include_in_schema=False)


@router.get("/deployment/audit", response_class=HTMLResponse)
def show_incidents(request: Request, caller: CurrentCaller, after: PageAfter = None) -> HTMLResponse:
    require(caller, "admin", "to see the deployment's audit trail")
    trail = sources_of(request).audit_log
    if trail is None:
        raise HttpProblem("not_found", "this control keeps no audit trail")
    found = trail.entries(ROWS + 1, read_number(after or None))
    entries, following = cut(found, ROWS, lambda entry: write_number(entry.id))
    return answer(request, "incidents.html", entries=entries, following=following)
