"""Limits the size of an update of the page, and truncates untrusted texts to stay below it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from services.control.page.templates import render, templates

OVERVIEW, ROWS, PIPELINES = 7_500, 42_000, 49_500
"""Bytes of each part at most, as it travels. Those that travel together are less than 50,000."""

ROOMS = (240, 90, 40, 24)
"""Bytes for each text: as many as there are where the texts are ordinary, fewer where they would be too much."""

ELLIPSIS = "…"


def clip(text: str, room: int) -> str:
    """The beginning of ``text``, on one line, that takes at most ``room`` bytes as HTML. One character may take six."""
    line = " ".join(text[: room + 1].split())
    if len(text) <= room and _weight(line) <= room:
        return line
    taken = _weight(ELLIPSIS)
    for index, character in enumerate(line):
        taken += _weight(character)
        if taken > room:
            return line[:index] + ELLIPSIS
    return line + ELLIPSIS


templates.filters["clip"] = clip


def fitted(name: str, limit: int, **values: Any) -> Markup:
    """A template rendered with the most ``room`` for its texts with which it weighs at most ``limit`` bytes."""
    for room in ROOMS:
        html = render(name, room=room, **values)
        if len(event("", html)) <= limit:
            break
    return Markup(html)  # noqa: S704 - a template's own output, which escaped what it was given


def event(name: str, html: str) -> bytes:
    """An event as it travels: on one line, for the start of each would weigh as well."""
    line = " ".join(each.strip() for each in html.splitlines())
    return f"event: {name}\ndata: {line}\n\n".encode()


def _weight(text: str) -> int:
    return len(escape(text).encode())
