"""What the routes are given of the running service, so that they need nothing of how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request

from services.control.operations.destination_service import DestinationService
from services.control.operations.discovery import Arrivals
from services.control.operations.pipeline_service import PipelineService
from services.control.operations.work_items import Work
from services.control.store.access_audit import Incidents
from services.control.store.audit_log import Trail
from services.control.store.tokens import Scope, Tokens
from services.control.view.destination_status import View
from services.control.view.history import Pulse
from services.control.web.caller import Asker
from services.control.web.page_snapshot import Pane
from services.control.web.problems import Problem

MOST_NAMED = 10


class PipelineHandle:
    """One pipeline, as the routes see it. May be used from any thread, and answers within a few seconds."""

    def __init__(
        self,
        view: Callable[[], View],
        desk: DestinationService | None = None,
        work: Work | None = None,
        pulse: Pulse | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        self.view = view
        self.desk = desk
        self.work = work
        self.arrivals = arrivals
        self.pulse = pulse or Pulse(view)
        self.pane = Pane(view, self.pulse)


@dataclass(frozen=True)
class Sources:
    """Each may be called from any thread and answers within a few seconds. ``pipelines``: by name, as they are now."""

    pipelines: Callable[[], Mapping[str, PipelineHandle]]
    checks: Callable[[], Mapping[str, str | None]]
    metrics: Callable[[], str]
    tokens: Tokens | None = None
    pipeline_desk: PipelineService | None = None
    incidents: Incidents | None = None
    trail: Trail | None = None
    """Of what concerns no pipeline."""

    def seen_by(self, asker: Asker) -> Sources:
        """Without the pipelines that a token is not for: for its holder there are no others."""
        if asker.pipelines is None:
            return self
        return replace(self, pipelines=lambda: {name: it for name, it in self.pipelines().items() if asker.sees(name)})


def sources_of(request: Request) -> Sources:
    sources = request.app.state.sources
    assert isinstance(sources, Sources)  # noqa: S101 - ``build`` put it there
    return sources.seen_by(asker_of(request))


def asker_of(request: Request) -> Asker:
    asker = request.state.asker
    assert isinstance(asker, Asker)  # noqa: S101 - the middleware put it there
    return asker


def require(asker: Asker, scope: Scope, what: str) -> None:
    """Raises ``Problem`` for whoever may not do what the guard can't see from outside."""
    if not asker.may(scope):
        raise Problem("forbidden", f"{what} needs a token with the scope {scope}; {asker.name} has {asker.scope}")


def served_of(pipeline: str, request: Request) -> PipelineHandle:
    """The pipeline that the path names."""
    there = sources_of(request).pipelines()
    served = there.get(pipeline)
    if served is None:
        serves = f"this control serves {', '.join(sorted(there)[:MOST_NAMED])}{' …' if len(there) > MOST_NAMED else ''}"
        raise Problem("not_found", f"there is no pipeline {pipeline}", serves)
    return served


def pipeline_desk_of(request: Request) -> PipelineService:
    """Where pipelines come and go."""
    desk = sources_of(request).pipeline_desk
    if desk is None:
        raise Problem("not_found", "this control's pipelines come from files alone")
    return desk


def views_of(request: Request) -> Mapping[str, View]:
    return {name: served.view() for name, served in sources_of(request).pipelines().items()}


def pipeline_view(pipeline: str, request: Request) -> View:
    """The view of the pipeline that the path names."""
    return served_of(pipeline, request).view()


def desk_of(pipeline: str, request: Request) -> DestinationService:
    """The desk of the pipeline that the path names."""
    desk = served_of(pipeline, request).desk
    if desk is None:
        raise Problem("not_found", f"there is no pipeline {pipeline} that can be changed")
    return desk


def work_of(pipeline: str, request: Request) -> Work:
    """The work of the pipeline that the path names."""
    work = served_of(pipeline, request).work
    if work is None:
        raise Problem("not_found", f"there is no pipeline {pipeline} whose work can be seen")
    return work


def arrivals_of(pipeline: str, request: Request) -> Arrivals:
    """What appears in the pipeline that the path names."""
    arrivals = served_of(pipeline, request).arrivals
    if arrivals is None:
        raise Problem("not_found", f"there is no pipeline {pipeline} that has proposals")
    return arrivals


async def _pipeline_view(pipeline: str, request: Request) -> View:
    """On the event loop: what a thread of its own would cost is more than the view does."""
    return pipeline_view(pipeline, request)


CurrentViews = Annotated[Mapping[str, View], Depends(views_of)]
PipelineView = Annotated[View, Depends(_pipeline_view)]
CurrentDesk = Annotated[DestinationService, Depends(desk_of)]
CurrentPipelineDesk = Annotated[PipelineService, Depends(pipeline_desk_of)]
CurrentWork = Annotated[Work, Depends(work_of)]
CurrentArrivals = Annotated[Arrivals, Depends(arrivals_of)]
CurrentAsker = Annotated[Asker, Depends(asker_of)]
