"""What the routes are given of the running service, as functions, so that they need nothing of how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import Request

from services.control.status import View


@dataclass(frozen=True)
class Sources:
    """Each may be called from any thread and answers within a few seconds."""

    view: Callable[[], View]
    checks: Callable[[], Mapping[str, str | None]]
    metrics: Callable[[], str]


def sources_of(request: Request) -> Sources:
    sources = request.app.state.sources
    assert isinstance(sources, Sources)  # noqa: S101 - ``build`` put it there
    return sources


def view_of(request: Request) -> View:
    return sources_of(request).view()
