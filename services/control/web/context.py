"""What the routes are given of the running service, so that they need nothing of how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from services.control.operations.destination_past import DestinationPast
from services.control.operations.destination_schema import DestinationSchemas
from services.control.operations.destination_service import DestinationService
from services.control.operations.discovery import Discovery
from services.control.operations.pipeline_service import PipelineService
from services.control.operations.rejections import Rejections
from services.control.operations.source_watch import SourceWatch
from services.control.operations.upkeep_service import UpkeepService
from services.control.operations.work_items import Work
from services.control.store.access_audit import AccessAudit
from services.control.store.audit_log import AuditLog
from services.control.store.tokens import Scope, Tokens
from services.control.view.destination_status import View
from services.control.view.history import History
from services.control.web.caller import Caller
from services.control.web.page_snapshot import SnapshotCache
from services.control.web.problems import HttpProblem

Part = TypeVar("Part")

MOST_NAMED = 10


@dataclass
class PipelineHandle:
    """One pipeline, as the routes see it. May be used from any thread, and answers within a few seconds."""

    view: Callable[[], View]
    service: DestinationService | None = None
    work: Work | None = None
    kept: InitVar[History | None] = None
    discovery: Discovery | None = None
    source_watch: SourceWatch | None = None
    past: DestinationPast | None = None
    upkeep: UpkeepService | None = None
    schemas: DestinationSchemas | None = None
    rejections: Rejections | None = None
    history: History = field(init=False)
    snapshots: SnapshotCache = field(init=False)

    def __post_init__(self, kept: History | None) -> None:
        """``kept``: a history to continue; None to begin a new one."""
        self.history = kept or History(self.view)
        self.snapshots = SnapshotCache(self.view, self.history)


@dataclass(frozen=True)
class Sources:
    """Each may be called from any thread and answers within a few seconds. ``pipelines``: by name, as they are now."""

    pipelines: Callable[[], Mapping[str, PipelineHandle]]
    checks: Callable[[], Mapping[str, str | None]]
    metrics: Callable[[], str]
    tokens: Tokens | None = None
    pipeline_service: PipelineService | None = None
    incidents: AccessAudit | None = None
    audit_log: AuditLog | None = None
    """Of what concerns no pipeline."""

    def seen_by(self, caller: Caller) -> Sources:
        """Without the pipelines that a token is not for: for its holder there are no others."""
        if caller.pipelines is None:
            return self
        return replace(self, pipelines=lambda: {name: it for name, it in self.pipelines().items() if caller.sees(name)})


def sources_of(request: Request) -> Sources:
    """What the client may see."""
    return whole_sources_of(request).seen_by(caller_of(request))


def whole_sources_of(request: Request) -> Sources:
    """What there is: for an answer that depends on all pipelines, and names none that the client may not see."""
    sources = request.app.state.sources
    assert isinstance(sources, Sources)  # noqa: S101 - ``build`` put it there
    return sources


def caller_of(request: Request) -> Caller:
    caller = request.state.caller
    assert isinstance(caller, Caller)  # noqa: S101 - the middleware put it there
    return caller


def require(caller: Caller, scope: Scope, what: str) -> None:
    """Raises ``HttpProblem`` if the client lacks a right that the guard cannot check from the path."""
    if not caller.may(scope):
        raise HttpProblem("forbidden", f"{what} needs a token with the scope {scope}; {caller.name} has {caller.scope}")


def require_to_reseed(caller: Caller, service: DestinationService, destination: str) -> None:
    """Raises ``HttpProblem`` where rows that Viaduck did not write would be replaced and the asker may not drop any."""
    if not service.is_ours(destination):
        require(caller, "drop", "to reseed what Viaduck has not filled, which replaces whatever the table holds")


def handle_of(pipeline: str, request: Request) -> PipelineHandle:
    """The pipeline that the path names."""
    there = sources_of(request).pipelines()
    served = there.get(pipeline)
    if served is None:
        serves = f"this control serves {', '.join(sorted(there)[:MOST_NAMED])}{' …' if len(there) > MOST_NAMED else ''}"
        raise HttpProblem("not_found", f"there is no pipeline {pipeline}", serves)
    return served


def pipeline_service_of(request: Request) -> PipelineService:
    """Where pipelines come and go."""
    return _there(sources_of(request).pipeline_service, "this control's pipelines come from files alone")


def tokens_of(request: Request) -> Tokens:
    """Where tokens are made and revoked."""
    return _there(sources_of(request).tokens, "this control keeps no tokens")


def views_of(request: Request) -> Mapping[str, View]:
    return {name: served.view() for name, served in sources_of(request).pipelines().items()}


def destination_service_of(pipeline: str, request: Request) -> DestinationService:
    """The destination service of the pipeline that the path names."""
    return _there(handle_of(pipeline, request).service, f"there is no pipeline {pipeline} that can be changed")


def work_of(pipeline: str, request: Request) -> Work:
    """The work of the pipeline that the path names."""
    return _there(handle_of(pipeline, request).work, f"there is no pipeline {pipeline} whose work can be seen")


def rejections_of(pipeline: str, request: Request) -> Rejections:
    """The rejected records of the pipeline that the path names."""
    otherwise = f"there is no pipeline {pipeline} whose rejected records can be seen"
    return _there(handle_of(pipeline, request).rejections, otherwise)


def discovery_of(pipeline: str, request: Request) -> Discovery:
    """What appears in the pipeline that the path names."""
    return _there(handle_of(pipeline, request).discovery, f"there is no pipeline {pipeline} that has proposals")


def past_of(pipeline: str, request: Request) -> DestinationPast:
    """What the destinations of the pipeline that the path names had before."""
    return _there(handle_of(pipeline, request).past, f"there is no pipeline {pipeline} whose lakes can be looked at")


def schemas_of(pipeline: str, request: Request) -> DestinationSchemas:
    """The columns of the destinations of the pipeline that the path names."""
    return _there(handle_of(pipeline, request).schemas, f"there is no pipeline {pipeline} whose lakes can be looked at")


def upkeep_of(pipeline: str, request: Request) -> UpkeepService:
    """The upkeep of the pipeline that the path names."""
    otherwise = f"there is no pipeline {pipeline} whose destinations can be kept up"
    return _there(handle_of(pipeline, request).upkeep, otherwise)


def _there(part: Part | None, otherwise: str) -> Part:
    """Raises ``HttpProblem`` where this control, or the pipeline, has no such part."""
    if part is None:
        raise HttpProblem("not_found", otherwise)
    return part


async def _pipeline_view(pipeline: str, request: Request) -> View:
    """On the event loop: what a thread of its own would cost is more than the view does."""
    return handle_of(pipeline, request).view()


async def _handle(pipeline: str, request: Request) -> PipelineHandle:
    """On the event loop, as above."""
    return handle_of(pipeline, request)


CurrentPipeline = Annotated[PipelineHandle, Depends(_handle)]
CurrentViews = Annotated[Mapping[str, View], Depends(views_of)]
PipelineView = Annotated[View, Depends(_pipeline_view)]
CurrentDestinations = Annotated[DestinationService, Depends(destination_service_of)]
CurrentPipelines = Annotated[PipelineService, Depends(pipeline_service_of)]
CurrentWork = Annotated[Work, Depends(work_of)]
CurrentRejections = Annotated[Rejections, Depends(rejections_of)]
CurrentDiscovery = Annotated[Discovery, Depends(discovery_of)]
CurrentTokens = Annotated[Tokens, Depends(tokens_of)]
CurrentUpkeep = Annotated[UpkeepService, Depends(upkeep_of)]
CurrentPast = Annotated[DestinationPast, Depends(past_of)]
CurrentSchemas = Annotated[DestinationSchemas, Depends(schemas_of)]
CurrentCaller = Annotated[Caller, Depends(caller_of)]
