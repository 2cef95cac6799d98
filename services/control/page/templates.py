"""The page's templates, and what browsers are told with each of its answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from services.control.api.guard import SESSION

FOLDER = Path(__file__).parent

# Names, routing values and errors are whatever somebody wrote: everything is escaped, without exception.
templates = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)

NOT_KNOWN = "–"
SECONDS, MINUTES, HOURS = 100, 100 * 60, 100 * 3600
"""Up to where a duration is told in them, and in what is smaller."""


def known(value: object) -> str:
    return NOT_KNOWN if value is None else str(value)


def count(value: float) -> str:
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """As few digits as one needs to act."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < SECONDS:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if seconds < MINUTES:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min" if seconds < HOURS else f"{whole // 86400} d"


def spent(seconds: float | None) -> str:
    """Of something that mostly takes less than a second."""
    return NOT_KNOWN if seconds is None else f"{seconds:,.2f} s"


def moment(at: datetime) -> Markup:
    there = at.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        there.isoformat(timespec="seconds"), f"{there:%Y-%m-%d %H:%M:%S}"
    )


def breakable(word: str) -> Markup:
    """It may be broken behind each underscore."""
    return Markup("_<wbr>").join(word.split("_"))


templates.filters |= {each.__name__: each for each in (known, count, duration, spent, moment, breakable)}

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
