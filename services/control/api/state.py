"""What the routes are given of the running service, so that they need nothing of how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from services.control.api.guard import Asker
from services.control.api.problems import Problem
from services.control.desk import Desk
from services.control.pulse import Pulse
from services.control.status import View
from services.control.tokens import Tokens
from services.control.work import Work


@dataclass(frozen=True)
class Sources:
    """Each may be called from any thread and answers within a few seconds. ``desks`` and ``works`` by pipeline."""

    view: Callable[[], View]
    checks: Callable[[], Mapping[str, str | None]]
    metrics: Callable[[], str]
    desks: Mapping[str, Desk] = field(default_factory=dict)
    tokens: Tokens | None = None
    works: Mapping[str, Work] = field(default_factory=dict)
    pulse: Pulse | None = None


def sources_of(request: Request) -> Sources:
    sources = request.app.state.sources
    assert isinstance(sources, Sources)  # noqa: S101 - ``build`` put it there
    return sources


def asker_of(request: Request) -> Asker:
    asker = request.state.asker
    assert isinstance(asker, Asker)  # noqa: S101 - the middleware put it there
    return asker


def view_of(request: Request) -> View:
    return sources_of(request).view()


def pipeline_view(pipeline: str, request: Request) -> View:
    """The view of the pipeline that the path names."""
    view = view_of(request)
    if pipeline != view.pipeline:
        raise Problem("not_found", f"there is no pipeline {pipeline}", f"this control serves {view.pipeline}")
    return view


def desk_of(pipeline: str, request: Request) -> Desk:
    """The desk of the pipeline that the path names."""
    desk = sources_of(request).desks.get(pipeline)
    if desk is None:
        serves = sources_of(request).view().pipeline
        raise Problem("not_found", f"there is no pipeline {pipeline}", f"this control serves {serves}")
    return desk


def work_of(pipeline: str, request: Request) -> Work:
    """The work of the pipeline that the path names."""
    work = sources_of(request).works.get(pipeline)
    if work is None:
        raise Problem("not_found", f"there is no pipeline {pipeline}", "GET /v1/pipelines lists those that there are")
    return work


async def _pipeline_view(pipeline: str, request: Request) -> View:
    """On the event loop: what a thread of its own would cost is more than the view does."""
    return pipeline_view(pipeline, request)


CurrentView = Annotated[View, Depends(view_of)]
PipelineView = Annotated[View, Depends(_pipeline_view)]
CurrentDesk = Annotated[Desk, Depends(desk_of)]
CurrentWork = Annotated[Work, Depends(work_of)]
CurrentAsker = Annotated[Asker, Depends(asker_of)]
