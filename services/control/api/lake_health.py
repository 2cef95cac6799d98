"""How lakes fare: of a destination, and of all of a pipeline with the worst first."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from services.control.api.models import DestinationId, Page, PipelineName, require_known
from services.control.view.destination_status import View
from services.control.view.lake_health import SORTED_BY, HealthShown, rank, shown
from services.control.web.context import PipelineView
from services.control.web.paging import AskedPage, PageRequest, ranked_page
from services.control.web.problems import HttpProblem, declared

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["destinations"])

ID = "id"
MOST_KEYS = 5
LONGEST_SORT = 200

Sort = Annotated[
    str,
    Query(
        max_length=LONGEST_SORT,
        description="By what to sort, one key or several with commas between them; a minus puts the largest first: "
        + ", ".join((ID, *SORTED_BY)),
        examples=["-files,-free_bytes,-oldest_age"],
    ),
]


class HealthPage(Page[HealthShown]):
    """The source's lake, and those of one page of destinations."""

    source: HealthShown


@router.get("/destinations/{destination}/health", responses=declared("not_found"))
async def show_lake_health(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
) -> HealthShown:
    """How a destination's table and lake fare: files, rows, snapshots, as its catalog had them at the last look."""
    return shown(view.pipeline, destination, view.health_of(require_known(view, destination)))


@router.get("/health", responses=declared("not_found"))
async def list_lake_health(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    view: PipelineView,
    asked: AskedPage,
    sort: Sort = ID,
) -> HealthPage:
    """The health of a pipeline's lakes. Lakes that were not looked at yet come last."""
    names, following = _ordered(view, _keys(sort), asked)
    return HealthPage(
        items=[shown(view.pipeline, name, view.health_of(name)) for name in names],
        next=following,
        source=shown(view.pipeline, None, view.source_health),
    )


def _ordered(view: View, keys: list[str], asked: PageRequest) -> tuple[list[str], str | None]:
    ranked = [(tuple(rank(view.health_of(name), key) for key in keys), name) for name in view.destinations]
    return ranked_page(ranked, len(keys), asked.limit, asked.after)


def _keys(sort: str) -> list[str]:
    """The keys by which to sort before the id. Raises ``HttpProblem`` for what is no key."""
    keys = [key.strip() for key in sort.split(",")]
    for key in keys:
        if key != ID and key.removeprefix("-") not in SORTED_BY:
            raise HttpProblem("invalid", f"sort: {key[:40]!r} is no key", f"choose among {', '.join((ID, *SORTED_BY))}")
    if len(keys) > MOST_KEYS:
        raise HttpProblem("invalid", f"sort: more than {MOST_KEYS} keys", "leave out those that decide least")
    return [key for key in keys if key != ID]
