"""The page's templates, and what browsers are told with each of its answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from services.control.web.caller import ANONYMOUS
from services.control.web.context import caller_of, sources_of
from services.control.web.guard import LOGIN
from shared.runtime.version import build_version

FOLDER = Path(__file__).parent

# Names, routing values and errors are untrusted texts: everything is escaped, without exception.
templates = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)

OF_ONE = re.compile(r"^/pipelines/[^/]+(?:/|$)")
SECTIONS = frozenset({"proposals", "operations", "work", "dead letters", "audit", "health", "tokens"})

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
        return "unknown"
    if seconds < SECONDS:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if seconds < MINUTES:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min" if seconds < HOURS else f"{whole // 86400} d"


def ago(seconds: float) -> str:
    """Two clocks are compared, which may differ by a little."""
    return f"{duration(max(0.0, seconds))} ago"


def spent(seconds: float | None) -> str:
    """Of something that mostly takes less than a second."""
    return NOT_KNOWN if seconds is None else f"{seconds:,.2f} s"


def size(number: float) -> str:
    """Bytes, as few digits as one needs."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def moment(at: datetime) -> Markup:
    there = at.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        there.isoformat(timespec="seconds"), f"{there:%Y-%m-%d %H:%M:%S}"
    )


def plainly(value: object) -> str:
    """A value of the audit trail, on one line; what is not set is left out."""
    if isinstance(value, dict):
        told = {name: plainly(each) for name, each in value.items() if each not in (None, "", False, {}, [])}
        return ", ".join(f"{name} {each}" for name, each in told.items()) or NOT_KNOWN
    if isinstance(value, list):
        return ", ".join(map(plainly, value)) or NOT_KNOWN
    return known(value)


def breakable(word: str) -> Markup:
    """It may be broken behind each underscore."""
    return Markup("_<wbr>").join(word.split("_"))


templates.filters |= {
    each.__name__: each for each in (known, count, duration, ago, spent, size, moment, plainly, breakable)
}

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
    """A whole page. ``base`` among the values: what the links of its pipeline's pages begin with."""
    who = visitor(request)
    alone = who.inside and len(sources_of(request).pipelines()) == 1
    around: dict[str, Any] = {
        "base": "" if alone else None, "who": who, "build": build_version(), "section": section_of(request.url.path),
    }  # fmt: skip
    return HTMLResponse(render(name, **{**around, **values}), status, headers=HEADERS)


def section_of(path: str) -> str | None:
    """Which entry of the bar on top a page belongs to; None for those of none."""
    below = OF_ONE.sub("/", path)
    first = below.split("/")[1]
    if first in ("", "destinations", "add", "all"):
        return "destinations"
    named = {"deployment": "tokens"}.get(first, first.replace("-", " "))
    return named if named in SECTIONS else None


@dataclass(frozen=True)
class Visitor:
    """The user of a page, for the templates."""

    name: str
    may_write: bool
    may_admin: bool
    logged_in: bool
    may_log_in: bool
    """There is a token to log in with, and none came."""
    inside: bool
    """May see what is served here, and so which build serves it."""
    here: str
    """Where a login is to lead back to, quoted."""


def visitor(request: Request) -> Visitor:
    caller, logged_in = caller_of(request), request.app.state.guard.session in request.cookies
    named = caller != ANONYMOUS
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    here = quote(asked if request.method == "GET" else request.url.path, safe="")
    return Visitor(
        name=caller.name,
        may_write=caller.may("write"),
        may_admin=caller.may("admin"),
        logged_in=logged_in and named,
        may_log_in=not named and request.app.state.guard.protected,
        inside=named or (request.url.path not in LOGIN and not hasattr(request.state, "turned_away")),
        here=here,
    )
