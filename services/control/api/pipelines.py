"""``/v1/pipelines``: what there is, and what was done to it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from services.control.api.models import After, Change, Limit, Page, PipelineName, change
from services.control.api.paging import DEFAULT_LIMIT, page, read_number, write_number
from services.control.api.problems import declared
from services.control.api.state import CurrentDesk, CurrentViews, PipelineView
from services.control.status import PipelineStatus, pipeline_status

router = APIRouter(prefix="/v1/pipelines", tags=["pipelines"])

OfDestination = Annotated[str | None, Query(max_length=200, description="Of this destination alone")]


@router.get("")
def list_pipelines(views: CurrentViews, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[PipelineStatus]:
    """All pipelines of this control."""
    names, following = page(list(views), limit, after)
    return Page(items=[pipeline_status(views[name]) for name in names], next=following)


@router.get("/{pipeline}", responses=declared("not_found"))
def show_pipeline(pipeline: PipelineName, view: PipelineView) -> PipelineStatus:  # noqa: ARG001 - the view is of it
    """How far a pipeline is as a whole."""
    return pipeline_status(view)


@router.get("/{pipeline}/audit", responses=declared("not_found"))
def list_changes(
    pipeline: PipelineName,  # noqa: ARG001 - the desk is of it
    desk: CurrentDesk,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    destination: OfDestination = None,
) -> Page[Change]:
    """Who did what to which destination, the newest first."""
    found = desk.trail.entries(limit + 1, read_number(after), destination)
    following = write_number(found[limit - 1].id) if len(found) > limit else None
    return Page(items=[change(entry) for entry in found[:limit]], next=following)
