"""``/v1/pipelines/{p}/destinations``: to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from services.control.api.models import (
    Commit,
    DestinationId,
    Detail,
    EntryShown,
    Page,
    PipelineName,
    detail,
    require_known,
)
from services.control.model.declared import as_put
from services.control.operations.destination_service import DestinationService
from services.control.view.destination_status import State, Status, StatusSummary, View, status
from services.control.view.observed_state import APPLYING
from services.control.web.conditions import etag, sends
from services.control.web.context import CurrentDestinations, CurrentPipeline, PipelineView
from services.control.web.paging import After, AskedPage, cut, page, read_number, write_number
from services.control.web.problems import declared
from shared.contracts.projection import project
from shared.lake.catalog.stamps import StampedCommit
from shared.lake.stamp import read_stamp

# What comes from memory is answered on the event loop: a thread that computes would wait for the interpreter longer
# than it computes, and make the loop wait at each of its sends.
router = APIRouter(prefix="/v1/pipelines/{pipeline}/destinations", tags=["destinations"])

Sort = Literal["id", "lag", "-lag", "position", "-position"]
LONGEST_HISTORY = 200
LONGEST_MESSAGE = 1_000
"""Characters of a commit's message, which the lake's owner may have written."""

UNKNOWN = float("inf")
"""Where a lag is not known yet, it is the worst."""


@router.get("", responses=declared("not_found"))
async def list_destinations(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    view: PipelineView,
    asked: AskedPage,
    state: Annotated[list[State] | None, Query(description="Only destinations in one of these states")] = None,
    prefix: Annotated[str | None, Query(max_length=200, description="Only ids that begin with this")] = None,
    search: Annotated[
        str | None, Query(max_length=200, description="Only destinations whose id or routing value contains this")
    ] = None,
    min_lag: Annotated[
        float | None, Query(ge=0, le=1e12, description="Only destinations that lag by at least this many seconds")
    ] = None,
    sort: Annotated[Sort, Query(description="The sort order; a minus reverses it")] = "id",
) -> Page[Status]:
    """The destinations of a pipeline, each with its status."""
    names = _named(view, prefix, search)
    if sort == "id" and state is None and min_lag is None:
        shown, following = page(names, asked.limit, asked.after)
        return Page(items=[status(view, name) for name in shown], next=following)
    standings = view.standings
    wanted = {
        name: each
        for name, each in ((name, standings[name]) for name in names)
        if (state is None or each.state in state) and (min_lag is None or (each.lag_seconds or 0.0) >= min_lag)
    }
    if sort == "id":
        shown, following = page(wanted, asked.limit, asked.after)
    else:
        ranked = [(_rank(each, sort), name) for name, each in wanted.items()]
        keys, following = page(ranked, asked.limit, asked.after)
        shown = [name for _, name in keys]
    return Page(items=[status(view, name) for name in shown], next=following)


@router.get("/{destination}", responses={200: sends("ETag"), **declared("not_found")})
async def show_destination(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
    response: Response,
) -> Detail:
    """A destination: its status, and what is registered of it. Its version is the ETag."""
    shown = detail(view, destination)
    response.headers["ETag"] = etag(shown.version)
    return shown


@router.get(
    "/{destination}/entry", response_model_exclude_unset=True, responses={200: sends("ETag"), **declared("not_found")}
)
async def show_entry(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
    response: Response,
) -> EntryShown:
    """A destination as it was put, and nothing else: change it, and PUT it to the destination with the ETag."""
    held = view.destinations[require_known(view, destination)]
    response.headers["ETag"] = etag(held.version)
    return EntryShown.model_validate(as_put(held.declared))


@router.get("/{destination}/status", responses=declared("not_found"))
async def show_status(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
) -> Status:
    """The status of a destination alone."""
    return status(view, require_known(view, destination))


@router.get("/{destination}/history", responses=declared("not_found", "not_visible"))
def list_history(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    service: CurrentDestinations,
    pipeline_handle: CurrentPipeline,
    view: PipelineView,
    limit: Annotated[int, Query(ge=1, le=LONGEST_HISTORY, description="How many at most")] = 50,
    after: After = None,
) -> Page[Commit]:
    """What was applied, the newest first: read from the commits of the destination's own lake."""
    history = service.history(destination, limit + 1, read_number(after))
    found, following = cut(history, limit, lambda stamped: write_number(stamped.snapshot))
    commits = _commits(found, view, destination)
    times = (
        {}
        if pipeline_handle.source_watch is None
        else pipeline_handle.source_watch.times_of(each.through for each in commits)
    )
    return Page(items=[_of_source(each, times) for each in commits], next=following)


def commits_of(service: DestinationService, view: View, destination: str, limit: int) -> list[Commit]:
    """The newest of a destination's own commits."""
    return _commits(service.history(destination, limit, None), view, destination)


def _named(view: View, prefix: str | None, search: str | None) -> list[str]:
    names = [name for name in view.destinations if prefix is None or name.startswith(prefix)]
    if search is None:
        return names
    sought = search.casefold()
    held = view.destinations
    return [n for n in names if sought in n.casefold() or sought in held[n].declared.routing_value.casefold()]


def _rank(each: StatusSummary, sort: str) -> float:
    if sort.endswith("lag"):
        rank = UNKNOWN if each.lag_seconds is None else each.lag_seconds
    else:
        rank = -1.0 if each.position is None else float(each.position)
    return -rank if sort.startswith("-") else rank


def _commits(found: Sequence[StampedCommit], view: View, destination: str) -> list[Commit]:
    ours = (_commit(each, view.pipeline, destination) for each in found)
    seen = view.seen.get(destination)
    took = {} if seen is None else {(seen.generation, position): seconds for position, seconds in seen.took}
    return [_timed(each, took) for each in ours if each is not None]


def _of_source(commit: Commit, times: Mapping[int, datetime]) -> Commit:
    """With the time of its position at the source."""
    return commit.model_copy(update={"source_at": times.get(commit.through)})


def _timed(commit: Commit, took: Mapping[tuple[int, int], float]) -> Commit:
    """With its duration. In one life, no two commits that move the position end at the same one."""
    if commit.kind not in APPLYING:
        return commit
    return commit.model_copy(update={"seconds": took.get((commit.generation, commit.through))})


def _commit(stamped: StampedCommit, pipeline: str, destination: str) -> Commit | None:
    """None for a commit by another writer whose name only looks alike, or for a stamp that is not Viaduck's."""
    said = read_stamp(stamped.extra_info)
    if said is None or not said.speaks_of(pipeline, destination):
        return None
    message = (stamped.message or "")[:LONGEST_MESSAGE]
    return project(Commit, said, snapshot=stamped.snapshot, at=stamped.time, message=message)
