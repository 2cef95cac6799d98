"""``/health``: whether broker, registry, sources, readers and appliers answer, and when each was heard last."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from services.control.page.templates import answer
from services.control.view.destination_status import View
from services.control.web.context import sources_of

router = APIRouter(include_in_schema=False)

MOST_SERVICES = 200
"""Readers and appliers that are shown, those that were heard last."""


@router.get("/health", response_class=HTMLResponse)
def show_health(request: Request) -> HTMLResponse:
    return answer(request, "health.html", **_found(request))


@router.get("/health/parts", response_class=HTMLResponse)
def health_parts(request: Request) -> HTMLResponse:
    """For a page that asks every few seconds."""
    return answer(request, "health_parts.html", **_found(request))


def _found(request: Request) -> dict[str, Any]:
    sources, now = sources_of(request), datetime.now(UTC)
    views = [served.view() for served in sources.pipelines().values()]
    return {"checks": dict(sources.checks()), "readers": _readers(views), "appliers": _appliers(views), "now": now}


def _readers(views: list[View]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"pipeline": view.pipeline, "it": whole} for view in views for whole in view.newest]
    return sorted(found, key=lambda each: each["it"].at, reverse=True)[:MOST_SERVICES]


def _appliers(views: list[View]) -> list[tuple[str, datetime]]:
    heard: dict[str, datetime] = {}
    for name, at in (each for view in views for each in view.appliers.items()):
        heard[name] = max(at, heard.get(name, at))
    return sorted(heard.items(), key=lambda each: each[1], reverse=True)[:MOST_SERVICES]
