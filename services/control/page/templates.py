"""The page's templates, and what browsers are told with each of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from services.control.api.guard import SESSION

FOLDER = Path(__file__).parent

# Names, routing values and errors are whatever somebody wrote: everything is escaped, without exception.
templates = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    # Under no-referrer a browser says "Origin: null" of our own forms too, and they could not be told from others'.
    "Referrer-Policy": "same-origin",
}


def render(name: str, **values: Any) -> str:
    return templates.get_template(name).render(**values)


def answer(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
    logged_in = SESSION in request.cookies
    return HTMLResponse(render(name, logged_in=logged_in, **values), status, headers=HEADERS)
