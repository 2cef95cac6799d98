"""Where a page is: which pipeline it shows, and what its links begin with."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request

from services.control.operations.destination_service import DestinationService
from services.control.web.context import PipelineHandle, handle_of, sources_of
from services.control.web.problems import HttpProblem

OF_ONE = "/pipelines/{pipeline}"
"""Where the pages of a pipeline are; those of the only one are at the root, too."""


def handle_here(request: Request) -> PipelineHandle:
    """The pipeline that the path names, or the only one."""
    there, named = sources_of(request).pipelines(), request.path_params.get("pipeline")
    if named is not None:
        return handle_of(named, request)
    if len(there) != 1:
        raise HttpProblem("not_found", "there are several pipelines", "the page / has links to each")
    return next(iter(there.values()))


def base(request: Request) -> str:
    """What the links of a page begin with."""
    named = request.path_params.get("pipeline")
    return "" if named is None else f"/pipelines/{quote(named, safe='')}"


def service_here(request: Request) -> DestinationService:
    """Where what is asked of the pipeline on this page is done."""
    service = handle_here(request).service
    if service is None:
        raise HttpProblem("not_found", "this pipeline can't be changed here")
    return service


def pipeline_here(request: Request) -> str:
    return handle_here(request).view().pipeline
