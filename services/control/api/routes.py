"""``/v1``: what there is, for scripts and the command line."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from services.control.api.paging import DEFAULT_LIMIT, MAX_LIMIT, page
from services.control.api.problems import MEDIA_TYPE, Problem, ProblemDocument
from services.control.api.state import view_of
from services.control.status import PipelineStatus, Status, View, pipeline_status, status

T = TypeVar("T")

CurrentView = Annotated[View, Depends(view_of)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most")]
After = Annotated[str | None, Query(description="`next` of the page before")]

PROBLEM: dict[str, Any] = {"model": ProblemDocument, "content": {MEDIA_TYPE: {}}}
NO_SUCH: dict[int | str, dict[str, Any]] = {404: {**PROBLEM, "description": "There is no such pipeline or destination"}}
INVALID: dict[int | str, dict[str, Any]] = {422: {**PROBLEM, "description": "A parameter is wrong"}}


class Page(BaseModel, Generic[T]):
    """A part of a list; ``next`` goes into ``after`` for the following one, null at the end."""

    items: list[T]
    next: str | None


router = APIRouter(prefix="/v1", tags=["pipelines"])


@router.get("/pipelines", responses=INVALID)
def list_pipelines(view: CurrentView, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[PipelineStatus]:
    """All pipelines of this control: one."""
    names, following = page([view.pipeline], limit, after)
    return Page(items=[pipeline_status(view) for _ in names], next=following)


@router.get("/pipelines/{pipeline}", responses=NO_SUCH)
def show_pipeline(pipeline: str, view: CurrentView) -> PipelineStatus:
    """How far a pipeline is as a whole."""
    return pipeline_status(_of(view, pipeline))


@router.get("/pipelines/{pipeline}/destinations", responses={**NO_SUCH, **INVALID})
def list_destinations(
    pipeline: str, view: CurrentView, limit: Limit = DEFAULT_LIMIT, after: After = None
) -> Page[Status]:
    """The destinations of a pipeline by id, each with its status."""
    names, following = page(_of(view, pipeline).destinations, limit, after)
    return Page(items=[status(view, name) for name in names], next=following)


@router.get("/pipelines/{pipeline}/destinations/{destination}", responses=NO_SUCH)
def show_destination(pipeline: str, destination: str, view: CurrentView) -> Status:
    """The status of a destination."""
    if destination not in _of(view, pipeline).destinations:
        hint = f"GET /v1/pipelines/{pipeline}/destinations lists those that there are"
        raise Problem(404, f"the pipeline {pipeline} has no destination {destination}", hint)
    return status(view, destination)


def _of(view: View, pipeline: str) -> View:
    if pipeline != view.pipeline:
        raise Problem(404, f"there is no pipeline {pipeline}", f"this control serves {view.pipeline}")
    return view
