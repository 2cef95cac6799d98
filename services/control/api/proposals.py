"""``/v1/pipelines/{p}/proposals``: routing values that have no destination, and an operator's yes or no."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict

from services.control.api.models import Detail, Page, PipelineName
from services.control.api.writes import shown_done
from services.control.model.policy import Reason
from services.control.store.proposals import Proposal, State
from services.control.web.conditions import sends
from services.control.web.context import CurrentCaller, CurrentDiscovery, CurrentPipeline
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import AskedPage, page
from services.control.web.problems import HttpProblem, declared
from shared.contracts.errors import DestinationError
from shared.contracts.projection import project

router = APIRouter(prefix="/v1/pipelines/{pipeline}/proposals", tags=["proposals"], route_class=StrictRoute)

PROPOSAL = "^[0-9a-f]{32}$"
EXAMPLE = "0123456789abcdef0123456789abcdef"
ProposalId = Annotated[str, Path(pattern=PROPOSAL, description="Its id", examples=[EXAMPLE])]


class ProposalShown(BaseModel):
    """A routing value that has no destination: untrusted data, which may contain any character."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": EXAMPLE, "pipeline": "events", "routing_value": "quacksworth", "whole": True, "rows": 1200,
                    "first_seen": 17, "state": "open", "reason": "asks",
                    "message": "appear.policy is to ask; accept or dismiss it", "destination": "quacksworth-lake",
                    "author": None, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
                }
            ]
        }
    )  # fmt: skip

    id: str
    """A digest of the whole routing value."""
    pipeline: str
    routing_value: str
    whole: bool
    """False: it is longer, and `routing_value` is its beginning."""
    rows: int
    """Rows that were seen with it: of a lake at most, of a topic at least."""
    first_seen: int
    """The snapshot of the source in which it was seen first; of a topic the number of records before the end of the
    range."""
    state: State
    reason: Reason
    """Why it is not a destination by itself."""
    message: str
    destination: str | None
    """The id of the destination that accepting makes; null where no safe name can be made."""
    author: str | None
    """Who dismissed it."""
    created_at: datetime
    updated_at: datetime


@router.get("", responses=declared("not_found"))
def list_proposals(
    pipeline: PipelineName,
    discovery: CurrentDiscovery,
    asked: AskedPage,
    state: Annotated[Literal["open", "dismissed"], Query(description="Only those in this state")] = "open",
) -> Page[ProposalShown]:
    """Routing values without a destination, those with most rows first."""
    found = {each.id: each for each in discovery.waiting() if each.state == state}
    ranked = [(-float(each.sighting.rows), each.id) for each in found.values()]
    keys, following = page(ranked, asked.limit, asked.after)
    return Page(
        items=[_shown(pipeline, found[name], discovery.suggestion(found[name])) for _, name in keys], next=following
    )


@router.post(
    "/{proposal}:accept",
    dependencies=IDEMPOTENT,
    status_code=201,
    responses={
        201: {"description": "It is a destination now.", **sends("ETag", "Location")},
        **declared("not_found", "unsafe_value", "conflict", "in_progress"),
    },
)
def accept_proposal(
    pipeline: PipelineName,
    proposal: ProposalId,
    discovery: CurrentDiscovery,
    caller: CurrentCaller,
    handle: CurrentPipeline,
    response: Response,
) -> Detail:
    """Make it a destination by the template, checked like a PUT; neither pattern nor limits are asked."""
    try:
        done = discovery.accept(proposal, caller.name)
    except DestinationError as error:
        raise HttpProblem("check_failed", f"{error.type}: {error.message}", error.hint) from None
    response.headers["Location"] = f"/v1/pipelines/{pipeline}/destinations/{done.held.id}"
    return shown_done(handle, response, done)


@router.post("/{proposal}:dismiss", dependencies=IDEMPOTENT, responses=declared("not_found", "in_progress"))
def dismiss_proposal(
    pipeline: PipelineName, proposal: ProposalId, discovery: CurrentDiscovery, caller: CurrentCaller
) -> ProposalShown:
    """Dismiss a routing value. It stays dismissed, however often it is seen, and may be accepted later."""
    found = discovery.dismiss(proposal, caller.name)
    return _shown(pipeline, found, discovery.suggestion(found))


def _shown(pipeline: str, proposal: Proposal, suggestion: str | None) -> ProposalShown:
    sighting = proposal.sighting
    return project(
        ProposalShown, proposal, sighting, proposal.decision,
        pipeline=pipeline, routing_value=sighting.value, destination=suggestion,
    )  # fmt: skip
