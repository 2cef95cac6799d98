"""``POST …/destinations/{d}:upkeep`` and ``…/destinations:upkeep``: keep the lakes of destinations small, now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from services.control.api.models import (
    DestinationId,
    OperationStatus,
    PipelineName,
    UpkeepAsked,
    operation_status,
    require_known,
)
from services.control.api.writes import STARTED
from services.control.view.destination_status import State
from services.control.web.context import CurrentCaller, CurrentUpkeep, PipelineView
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.problems import HttpProblem, declared

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["operations"], route_class=StrictRoute)

MOST_AT_ONCE = 1_000
"""Destinations of one request: each becomes an operation."""


class UpkeepRefused(BaseModel):
    """A destination that fits and gets no upkeep now."""

    destination: str
    reason: str


class UpkeepsBegun(BaseModel):
    """What a request for many began: an operation for each, and why the others were left out."""

    matched: int
    operations: list[OperationStatus]
    refused: list[UpkeepRefused]


@router.post(
    "/destinations/{destination}:upkeep",
    status_code=202,
    dependencies=IDEMPOTENT,
    responses={**STARTED, **declared("not_found", "conflict", "in_progress")},
)
def keep_destination(
    pipeline: PipelineName,
    destination: DestinationId,
    asked: UpkeepAsked,
    view: PipelineView,
    service: CurrentUpkeep,
    caller: CurrentCaller,
) -> Response:
    """Merge small files, expire snapshots, delete files that were let go, and orphans, as the policy allows it.

    The operation's `upkeep` tells what each step came to. The same again, while it runs, answers with the same one.
    """
    require_known(view, destination)
    body = operation_status(pipeline, service.begin(destination, asked.order, caller.name))
    place = f"/v1/pipelines/{pipeline}/operations/{body.id}"
    return Response(body.model_dump_json(), 202, {"Location": place}, "application/json")


@router.post(
    "/destinations:upkeep",
    status_code=202,
    dependencies=IDEMPOTENT,
    responses=declared("not_found", "in_progress", "too_large"),
)
def keep_destinations(
    pipeline: PipelineName,
    asked: UpkeepAsked,
    view: PipelineView,
    service: CurrentUpkeep,
    caller: CurrentCaller,
    state: Annotated[State | None, Query(description="Only destinations in this state")] = None,
    prefix: Annotated[str, Query(max_length=200, description="Only destinations whose id begins with this")] = "",
) -> UpkeepsBegun:
    """The same for all destinations that fit. Expiry and clean-up are asked for once in each lake."""
    wanted = sorted(
        name
        for name, each in view.standings.items()
        if name.startswith(prefix) and (state is None or each.state == state)
    )
    if len(wanted) > MOST_AT_ONCE:
        said = f"{len(wanted)} destinations match, and a request begins {MOST_AT_ONCE} at most"
        raise HttpProblem("too_large", said, "narrow it down with prefix or state")
    begun = service.begin_all(wanted, asked.order, caller.name)
    refused = [UpkeepRefused(destination=name, reason=why) for name, why in begun.refused.items()]
    shown = [operation_status(pipeline, each) for each in begun.operations]
    return UpkeepsBegun(matched=len(wanted), operations=shown, refused=refused)
