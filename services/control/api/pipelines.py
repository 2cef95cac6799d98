"""``/v1/pipelines``: what there is, what comes and goes over REST, and what was done to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from services.control.api.models import (
    Page,
    PipelineDetail,
    PipelineListed,
    PipelineName,
)
from services.control.api.read_only_fields import document_of
from services.control.operations.pipeline_entry import EXAMPLE, TOPIC_EXAMPLE
from services.control.operations.pipeline_service import PipelineService
from services.control.store.audit_log import Change
from services.control.store.pipeline_store import StoredPipeline
from services.control.view.destination_status import PipelineStatus, View, pipeline_status
from services.control.web.conditions import GivenConditions, IfMatch, etag, matching, put_answers, sends
from services.control.web.context import (
    CurrentCaller,
    CurrentDestinations,
    CurrentPipelines,
    CurrentViews,
    handle_of,
    sources_of,
    views_of,
)
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import AskedPage, cut, page, read_number, write_number
from services.control.web.problems import HttpProblem, declared
from shared.contracts.projection import project

router = APIRouter(prefix="/v1/pipelines", tags=["pipelines"], route_class=StrictRoute)

OfDestination = Annotated[str | None, Query(max_length=200, description="Only of this destination")]
PipelineEntry = Annotated[
    dict[str, Any],
    Body(
        description="The keys of a configuration file that belong to the pipeline (docs/reference/configuration.md):"
        " `source`, `routing`, `destinations` (which may be added later), `template`, `appear`, `defaults`, `poll`,"
        " `flush`, `state`.",
        examples=[EXAMPLE, TOPIC_EXAMPLE],
    ),
]
CHANGING = ("declared_by_file", "precondition_failed", "too_large")


@router.get("")
def list_pipelines(
    views: CurrentViews, request: Request, caller: CurrentCaller, asked: AskedPage
) -> Page[PipelineListed]:
    """All pipelines of this control that the token is for."""
    service = sources_of(request).pipeline_service
    over_rest = frozenset() if service is None else frozenset(filter(caller.sees, service.names))
    names, following = page([*views, *(over_rest - views.keys())], asked.limit, asked.after)
    return Page(items=[_listed(name, views, service) for name in names], next=following)


@router.get("/{pipeline}", responses={200: sends("ETag"), **declared("not_found")})
def show_pipeline(pipeline: PipelineName, request: Request, response: Response) -> PipelineDetail:
    """How far a pipeline is as a whole, and what was put over REST. The version of that is the ETag."""
    return _shown(pipeline, request, response)


@router.get("/{pipeline}/document", responses={200: sends("ETag"), **declared("not_found")})
def show_document(pipeline: PipelineName, service: CurrentPipelines, response: Response) -> dict[str, Any]:
    """A pipeline that came over REST as it was put: change it, and PUT it to the pipeline with the ETag."""
    document = service.find(pipeline)
    if document is None:
        raise HttpProblem(
            "not_found", f"there is no pipeline {pipeline} that came over REST", "GET /v1/pipelines lists all"
        )
    response.headers["ETag"] = etag(document.version)
    return dict(document.content or {})


@router.put(
    "/{pipeline}", responses={**put_answers(PipelineDetail), **declared("not_found", "one_file_alone", *CHANGING)}
)
def put_pipeline(
    pipeline: PipelineName,
    document: PipelineEntry,
    service: CurrentPipelines,
    caller: CurrentCaller,
    request: Request,
    response: Response,
    given: GivenConditions,
    check: Annotated[bool, Query(description="Check its source first")] = True,
) -> PipelineDetail:
    """Create or change a pipeline. The same again changes nothing; what GET answers may be sent back."""
    same = matching(given.if_match)
    kept = service.find(pipeline)
    present = None if kept is None else _detail(pipeline, request, kept)
    content = document_of(pipeline, document, present)
    if same is None and content is not document and isinstance(seen := document.get("version"), int):
        same = seen.__eq__
    done = service.put(pipeline, content, caller.name, same, check=check, new=given.new)
    if done.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/pipelines/{pipeline}"
    return _shown(pipeline, request, response)


@router.delete("/{pipeline}", status_code=204, responses=declared("not_found", *CHANGING))
def delete_pipeline(
    pipeline: PipelineName, service: CurrentPipelines, caller: CurrentCaller, if_match: IfMatch = None
) -> Response:
    """Stop and forget a pipeline that came over REST, with all its destinations. What they wrote stays."""
    service.remove(pipeline, caller.name, matching(if_match))
    return Response(status_code=204)


@router.get("/{pipeline}/audit", responses=declared("not_found"))
def list_changes(
    pipeline: PipelineName,  # noqa: ARG001 - the service is of it
    service: CurrentDestinations,
    asked: AskedPage,
    destination: OfDestination = None,
) -> Page[Change]:
    """Who did what to which destination, or to the pipeline itself, the newest first."""
    found = service.audit_log.entries(asked.limit + 1, read_number(asked.after), destination)
    shown, following = cut(found, asked.limit, lambda entry: write_number(entry.id))
    return Page(items=list(shown), next=following)


def _shown(pipeline: str, request: Request, response: Response) -> PipelineDetail:
    service = sources_of(request).pipeline_service
    document = None if service is None else service.find(pipeline)
    if document is None:
        handle_of(pipeline, request)  # or there is no such pipeline
    else:
        response.headers["ETag"] = etag(document.version)
    return _detail(pipeline, request, document)


def _detail(pipeline: str, request: Request, document: StoredPipeline | None) -> PipelineDetail:
    service, views = sources_of(request).pipeline_service, views_of(request)
    listed, rebuilt = _listed(pipeline, views, service), views[pipeline].rebuilt if pipeline in views else None
    if document is None:
        return project(PipelineDetail, listed, rebuilt=rebuilt)
    content = dict(document.content or {})
    return project(PipelineDetail, listed, document, rebuilt=rebuilt, updated_at=document.at, document=content)


def _listed(pipeline: str, views: Mapping[str, View], service: PipelineService | None) -> PipelineListed:
    over_rest = service is not None and service.find(pipeline) is not None
    return project(PipelineListed, _status(pipeline, views, service), managed_by="api" if over_rest else "file")


def _status(pipeline: str, views: Mapping[str, View], service: PipelineService | None) -> PipelineStatus:
    """For a pipeline that is registered and does not run here, the reason is known."""
    if pipeline in views:
        return pipeline_status(views[pipeline])
    trouble = () if service is None else service.trouble(pipeline)
    return pipeline_status(View(pipeline=pipeline, in_force=False, refused=trouble))
