"""``/v1/pipelines/{p}/work`` and ``…/dead-letters``: to look at, and to send again."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from services.control.api.models import Page, PipelineName
from services.control.operations.replay_pacing import HIGHEST_RATE, USUAL_RATE
from services.control.operations.work_items import MAX_SENT, FoundItem, ReplayCall, Sent, State, WorkItemFilter
from services.control.web.context import CurrentCaller, CurrentWork
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import DEFAULT_LIMIT, Limit, Offset, read_spans, write_spans
from services.control.web.problems import declared
from shared.config.secrets import LONGEST, told
from shared.contracts.messages import DeadLetter, ItemKind
from shared.contracts.projection import project
from shared.kafka.record import Record

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["work"], route_class=StrictRoute)

SHOWN_PAYLOAD = 500
LONGEST_CURSOR = 16_000
"""It names hundreds of partitions; a server takes no address beyond 64 KB, and escapes may treble it."""


SENDING = declared("not_found", "in_progress", "replay_running", "too_large")


def _text(value: object) -> object:
    """A number would be read as seconds since 1970, which no client means."""
    if isinstance(value, str):
        return value
    raise ValueError("must be a time as text, with its zone")


Most = Annotated[int, Query(ge=1, le=MAX_SENT, description="How many to send at once")]
Rest = Annotated[
    str | None,
    Query(
        max_length=LONGEST_CURSOR,
        pattern="^[A-Za-z0-9_-]*$",
        description="`next` of the previous call, unchanged; other parameters as in that call",
    ),
]
Rate = Annotated[int, Field(strict=True, ge=1, le=HIGHEST_RATE, description="Messages a second")]
Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
Snapshot = Annotated[int, Field(strict=True, ge=-1, le=2**62)]


def _portion(limit: Most = MAX_SENT, after: Rest = None) -> ReplayCall:
    return ReplayCall(most=limit, rest=read_spans(after))


Portion = Annotated[ReplayCall, Depends(_portion)]
"""How much one call sends at most, and from where on."""


class ItemShown(BaseModel):
    """A work item, where it lies on the topic, and what became of it."""

    partition: int
    offset: int
    item: str
    kind: ItemKind
    destination: str
    generation: int
    after: int
    through: int
    rows: int | None
    attempt: int
    published_at: datetime
    state: State


class Replay(BaseModel):
    """Which items to send again; everything that is given must hold. Nothing at all means every item."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"destination": "quacksworth-lake", "after": 10, "through": 20}]},
    )

    destination: Annotated[str, Field(max_length=200)] | None = None
    kind: ItemKind | None = None
    since: Moment | None = None
    until: Moment | None = None
    partition: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    from_offset: Offset | None = None
    to_offset: Offset | None = None
    after: Snapshot | None = None
    through: Snapshot | None = None
    rate: Rate = USUAL_RATE
    dry_run: StrictBool = False


class Redrive(BaseModel):
    """Which letters to send to where they came from; nothing given means all of them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"partition": 0, "offset": 12}]})

    partition: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    offset: Offset | None = None
    rate: Rate = USUAL_RATE
    dry_run: StrictBool = False


class SentAgain(BaseModel):
    """How many matched, were confirmed by the broker, can't be sent again.

    `more`: others match as well; the same call with `next` as `?after=` goes on behind these.
    """

    matched: int
    sent: int
    refused: int
    more: bool
    next: str | None


class Letter(BaseModel):
    """A message that no service could read, and the reason."""

    partition: int
    offset: int
    topic: str
    key: str | None
    reason: str
    by: str
    at: datetime
    payload: str
    """Its beginning, as text."""


@router.get("/work", responses=declared("not_found"))
def list_work(
    pipeline: PipelineName,  # noqa: ARG001 - the work is of it
    work: CurrentWork,
    limit: Limit = DEFAULT_LIMIT,
    destination: Annotated[str | None, Query(max_length=200, description="Only of this destination")] = None,
    state: Annotated[State | None, Query(description="Only those in this state")] = None,
) -> Page[ItemShown]:
    """The newest work items by their own time, and what became of each.

    There is no following page: the topic's partitions have no order among them that a cursor could go on in.
    """
    found = work.items(limit, WorkItemFilter(destination=destination), state)
    return Page(items=[_shown(each) for each in found], next=None)


@router.post("/work:replay", dependencies=IDEMPOTENT, responses=SENDING)
def replay_work(
    pipeline: PipelineName,  # noqa: ARG001
    which: Replay,
    work: CurrentWork,
    caller: CurrentCaller,
    portion: Portion,
) -> SentAgain:
    """Send work items again. Harmless: each destination's fence refuses what it has already.

    What was sent again before is left out, and so is what arrives after the first call. A call sends what goes out
    within five seconds at its `rate`, and while one does no other may.
    """
    wanted = WorkItemFilter(**which.model_dump(exclude={"dry_run", "rate"}))
    return sent_again(work.replay(wanted, caller.name, replace(portion, dry_run=which.dry_run, rate=which.rate)))


@router.get("/dead-letters", responses=declared("not_found"))
def list_dead_letters(
    pipeline: PipelineName,  # noqa: ARG001
    work: CurrentWork,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Letter]:
    """Messages that no service could read, newest first by their own time. As for work, there is no following page."""
    return Page(items=[_letter(record, letter) for record, letter in work.dead_letters(limit)], next=None)


@router.post("/dead-letters:redrive", dependencies=IDEMPOTENT, responses=SENDING)
def redrive_dead_letters(
    pipeline: PipelineName,  # noqa: ARG001
    which: Redrive,
    work: CurrentWork,
    caller: CurrentCaller,
    portion: Portion,
) -> SentAgain:
    """Send dead letters to where they came from; a letter that still cannot be read comes back.

    A letter that has come back before is left out unless it is named, because its first copy is there, too.
    """
    call = replace(portion, dry_run=which.dry_run, rate=which.rate)
    return sent_again(work.redrive(which.partition, which.offset, caller.name, call))


def _shown(found: FoundItem) -> ItemShown:
    return project(ItemShown, found.item, found.record, found)


def sent_again(sent: Sent) -> SentAgain:
    following = write_spans(sent.rest)
    return SentAgain(
        matched=sent.matched, sent=sent.sent, refused=sent.refused, more=following is not None, next=following
    )


def _letter(record: Record, letter: DeadLetter) -> Letter:
    payload = base64.b64decode(letter.payload)[: 4 * LONGEST].decode(errors="backslashreplace")
    return project(
        Letter, letter, partition=record.partition, offset=record.offset,
        reason=told(letter.reason), payload=told(payload, SHOWN_PAYLOAD),
    )  # fmt: skip
