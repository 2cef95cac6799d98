"""``/v1/pipelines/{p}/operations``: actions that take longer than a request, to be followed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from services.control.api.models import OperationStatus, Page, PipelineName, operation_status
from services.control.web.context import CurrentDestinations, PipelineView
from services.control.web.paging import AskedPage, cut, read_id, write_id
from services.control.web.problems import HttpProblem, declared

router = APIRouter(prefix="/v1/pipelines/{pipeline}/operations", tags=["operations"])


@router.get("", responses=declared("not_found"))
def list_operations(
    pipeline: PipelineName,
    service: CurrentDestinations,
    view: PipelineView,
    asked: AskedPage,
    destination: Annotated[str | None, Query(max_length=200, description="Only of this destination")] = None,
) -> Page[OperationStatus]:
    """The newest operations, the newest first."""
    before = read_id(asked.after, service.operations.find)
    newest = service.operations.newest(asked.limit + 1, destination, before)
    found, following = cut(newest, asked.limit, lambda operation: write_id(operation.id))
    return Page(items=[operation_status(pipeline, service.now_of(each, view)) for each in found], next=following)


@router.get("/{operation}", responses=declared("not_found"))
def show_operation(
    pipeline: PipelineName,
    operation: Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="Its id")],
    service: CurrentDestinations,
    view: PipelineView,
) -> OperationStatus:
    """How far an operation is."""
    found = service.operations.find(operation)
    if found is None:
        raise HttpProblem("not_found", f"there is no operation {operation}", "GET …/operations lists the newest")
    return operation_status(pipeline, service.now_of(found, view))
