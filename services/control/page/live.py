"""``/``: the destinations as a table that renews itself. Nothing on it comes from anywhere else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from services.control.api.paging import page
from services.control.api.state import view_of
from services.control.status import View, pipeline_status, status

ROWS = 500
RENEW_S = 2

FOLDER = Path(__file__).parent
# Names, routing values and errors are whatever somebody wrote: everything is escaped, without exception.
templates = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)

STYLE = templates.get_template("live.css").render()
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=HTMLResponse)
def live(view: Annotated[View, Depends(view_of)], after: Annotated[str | None, Query()] = None) -> HTMLResponse:
    return HTMLResponse(render(view, after), headers=HEADERS)


def render(view: View, after: str | None = None) -> str:
    names, following = page(view.destinations, ROWS, after)
    return templates.get_template("live.html").render(
        pipeline=pipeline_status(view),
        destinations=[status(view, name) for name in names],
        after=after,
        following=following,
        renew_s=RENEW_S,
    )
