"""``/v1/retention``: how far each source lake may be expired, over all pipelines that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from services.control.api.models import Page, PipelineName
from services.control.view.destination_status import State
from services.control.view.lake_retention import LakeRetention, by_lake
from services.control.web.caller import Caller
from services.control.web.context import CurrentCaller, CurrentDestinations, PipelineHandle, whole_sources_of
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import AskedPage, page
from services.control.web.problems import declared
from shared.contracts.messages import MOST, now

router = APIRouter(tags=["retention"], route_class=StrictRoute)

EXPIRED = "source_expired"
"""The deed in the audit trail."""

EXAMPLE: dict[str, Any] = {
    "lake": "0f3c2a7e-0000-4000-8000-000000000000", "pipelines": ["events"], "head": 9000, "oldest": 120,
    "lowest": 812, "may_expire_through": 811,
    "held_by": {"pipeline": "events", "destination": "quacksworth-lake", "state": "paused", "position": 812,
                "at": "2026-01-01T00:00:00Z"},
    "unknown": [], "unknown_count": 0, "looked_at": "2026-01-08T00:00:00Z", "error": None,
}  # fmt: skip
"""For OpenAPI."""


class HeldBy(BaseModel):
    """The destination that needs the oldest snapshot."""

    pipeline: str
    destination: str
    state: State
    position: int
    """The snapshot that it needs: its stored position, or where it is to begin."""
    at: datetime | None
    """When the source committed that snapshot; null where the source does not say."""


class Unknown(BaseModel):
    """A destination whose position is unknown, or a whole pipeline of such destinations."""

    pipeline: str
    destination: str | None
    state: State | None


class Retention(BaseModel):
    """How far a source lake may be expired: ``lowest`` itself must stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    lake: str | None
    """The lake's uuid; null for a pipeline whose source was not looked at yet."""
    pipelines: list[str]
    head: int | None
    oldest: int | None
    lowest: int | None
    """The oldest snapshot that a destination needs; null where none needs any."""
    may_expire_through: int | None
    """Null while a position is unknown. Readers that Viaduck does not know of are not considered."""
    held_by: HeldBy | None
    unknown: list[Unknown]
    unknown_count: int
    """``unknown`` lists up to 100 of them."""
    looked_at: datetime | None
    """When control looked at the lake last."""
    error: str | None
    """Why the look after that failed."""


class Expiry(BaseModel):
    """What was expired from a source, for the audit trail."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"snapshots": 691, "through": 811}]})

    snapshots: Annotated[int, Field(strict=True, ge=1, le=MOST, description="How many")]
    through: Annotated[int, Field(strict=True, ge=0, le=MOST, description="The newest of them")]
    ignored: Annotated[
        list[Annotated[str, Field(max_length=200)]],
        Field(max_length=1_000, description="Destinations that were not considered, as was asked for"),
    ] = []


@router.get("/v1/retention", responses=declared("not_found"))
def show_retention(
    request: Request,
    caller: CurrentCaller,
    asked: AskedPage,
    ignore: Annotated[
        list[Annotated[str, Field(max_length=401)]] | None,
        Query(max_length=100, description="As if there were no such destination: its id, or PIPELINE/ID"),
    ] = None,
) -> Page[Retention]:
    """How far each source lake may be expired, over all pipelines and all of their destinations.

    A token that is limited to some pipelines sees the lakes of these, with the numbers of all pipelines.
    """
    handles = whole_sources_of(request).pipelines()
    views = {name: handle.view() for name, handle in handles.items() if _reads_lake(handle)}
    lakes = by_lake(views, _elsewhere(request, handles), frozenset(ignore or ()))
    found = {visible[0]: each for each in lakes if (visible := list(filter(caller.sees, each.pipelines)))}
    names, following = page(found, asked.limit, asked.after)
    return Page(items=[_shown(found[name], handles, caller) for name in names], next=following)


@router.post(
    "/v1/pipelines/{pipeline}/source:expired",
    status_code=204,
    dependencies=IDEMPOTENT,
    responses=declared("not_found", "in_progress"),
)
def note_expiry(
    pipeline: PipelineName,  # noqa: ARG001 - the service is of it
    expiry: Annotated[Expiry, Body()],
    service: CurrentDestinations,
    caller: CurrentCaller,
) -> None:
    """Put into the audit trail that snapshots of the source were expired: what `viaduck source expire` calls."""
    service.audit_log.note(EXPIRED, caller.name, now(), expiry.model_dump())


def _reads_lake(handle: PipelineHandle) -> bool:
    """Unless it is known to read a topic, which holds no snapshot of any lake."""
    return handle.source_watch is None or handle.source_watch.reads_lake


def _elsewhere(request: Request, handles: Mapping[str, PipelineHandle]) -> Iterable[str]:
    """Pipelines that are registered and do not run here: of their destinations nothing is known."""
    service = whole_sources_of(request).pipeline_service
    return () if service is None else [name for name in service.names if name not in handles]


def _shown(found: LakeRetention, handles: Mapping[str, PipelineHandle], caller: Caller) -> Retention:
    """A token that is limited to some pipelines is told the same numbers, and no names of others."""
    span = found.retained
    unknown = [each for each in found.unknown if caller.sees(each.pipeline)]
    return Retention(
        lake=None if span is None else span.lake,
        pipelines=[name for name in found.pipelines if caller.sees(name)],
        head=None if span is None else span.head,
        oldest=None if span is None else span.oldest,
        lowest=None if found.lowest is None else found.lowest.held.snapshot,
        may_expire_through=found.may_expire_through,
        held_by=_held_by(found, handles, caller),
        unknown=[Unknown(**vars(each)) for each in unknown],
        unknown_count=found.unknown_count,
        looked_at=found.looked_at,
        error=next((said for name in found.pipelines if (said := _problem(name, handles))), None),
    )


def _problem(pipeline: str, handles: Mapping[str, PipelineHandle]) -> str | None:
    watch = handles[pipeline].source_watch if pipeline in handles else None
    return None if watch is None else watch.problem


def _held_by(found: LakeRetention, handles: Mapping[str, PipelineHandle], caller: Caller) -> HeldBy | None:
    lowest = found.lowest
    if lowest is None or not caller.sees(lowest.pipeline):
        return None
    held, watch = lowest.held, handles[lowest.pipeline].source_watch
    at = lowest.at if lowest.at is not None or watch is None else watch.time_of(held.snapshot)
    return HeldBy(
        pipeline=lowest.pipeline, destination=held.destination, state=held.state, position=held.snapshot, at=at
    )
