"""``POST /v1/pipelines/{p}/destinations:resume`` and the like: one action for all destinations that a filter names."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from services.control.api.models import DestinationId, PipelineName
from services.control.view.destination_status import State, View
from services.control.web.context import CurrentCaller, CurrentDestinations, PipelineView
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.problems import HttpProblem, declared

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["destinations"])

MOST_NAMED = 10_000


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART = "restart"


class Which(BaseModel):
    """Destinations that fit every key that is given. At least one is: nothing is done to all by leaving all out."""

    model_config = ConfigDict(extra="forbid")

    ids: list[DestinationId] | None = Field(default=None, max_length=MOST_NAMED)
    state: list[State] | None = Field(default=None, description="Destinations in one of these states")
    reason: str | None = Field(
        default=None, max_length=200, description="Destinations with an error of this type, such as storage_refused"
    )
    prefix: str | None = Field(default=None, max_length=200, description="Destinations whose id begins with this")
    every: bool = Field(default=False, description="All destinations of the pipeline")
    expected: int | None = Field(
        default=None, ge=0, description="Do nothing (412) unless this many match, the number that the client has seen"
    )

    @property
    def names_any(self) -> bool:
        return self.every or any(
            each is not None for each in (self.ids, self.state, self.reason, self.prefix)
        )  # fmt: skip

    def of(self, view: View) -> Iterator[str]:
        named = None if self.ids is None else frozenset(self.ids)
        for name, each in view.standings.items():
            if (
                (named is None or name in named)
                and (self.state is None or each.state in self.state)
                and (self.reason is None or each.trouble == self.reason)
                and (self.prefix is None or name.startswith(self.prefix))
            ):
                yield name


class Acted(BaseModel):
    """What became of it, all in one transaction."""

    matched: int = Field(description="Destinations that fit")
    changed: int
    refused: int = Field(
        description="Matching destinations whose state does not allow the action, or that were removed meanwhile"
    )
    destinations: list[str] = Field(description="The matching destinations, by name")


@router.post(
    "/destinations:{verb}",
    dependencies=IDEMPOTENT,
    responses=declared("not_found", "in_progress", "too_large", "precondition_failed"),
)
def act_on_many(
    pipeline: PipelineName,  # noqa: ARG001 - view and service are of it
    verb: Verb,
    which: Which,
    view: PipelineView,
    service: CurrentDestinations,
    caller: CurrentCaller,
) -> Acted:
    """Pause, resume, stop or restart all destinations that fit: all that are parked for one reason, say.

    The same again finds them changed already, and changes nothing.
    """
    if not which.names_any:
        raise HttpProblem(
            "invalid", "the body names no destinations", "give ids, state, reason or prefix, or every: true"
        )
    wanted = sorted(which.of(view))
    if which.expected is not None and which.expected != len(wanted):
        said = f"{len(wanted)} destinations match, not {which.expected}; nothing was changed"
        raise HttpProblem("precondition_failed", said, "list the matching destinations and send the request again")
    changed, refused = service.act_all(wanted, verb.value, caller.name)
    return Acted(matched=len(wanted), changed=changed, refused=refused, destinations=wanted)
