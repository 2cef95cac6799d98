"""``/v1/pipelines/{p}/rejected``: records that could not become rows, to look at, and to send to their topic again."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from services.control.api.models import Page, PipelineName
from services.control.api.work import Portion, Rate, Rest, SentAgain, sent_again
from services.control.operations.rejected_records import Excerpt, RejectedRecord
from services.control.operations.replay_pacing import USUAL_RATE
from services.control.store.redriven import Mark
from services.control.web.context import CurrentCaller, CurrentRejections
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import DEFAULT_LIMIT, Limit, Offset, read_spans, write_spans
from services.control.web.problems import declared

router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["work"], route_class=StrictRoute)

SHOWN_TEXT = 500

LOOKING = declared("not_found", "source_is_lake")
SENDING = declared(
    "not_found", "in_progress", "replay_running", "source_is_lake", "source_refuses", "redriven_before", "too_large",
)  # fmt: skip


class ContentShown(BaseModel):
    """A key or value, which is untrusted: its beginning as base64 and as text, and its size in bytes."""

    size: int
    base64: str
    """Of the first 1,000 bytes; of a record asked for by partition and offset, of the first 1,000,000."""
    whole: bool
    """Whether ``base64`` is all of it."""
    text: str
    """At most 500 characters; what is not UTF-8 is escaped."""


class RedrivenShown(BaseModel):
    """When and by whom a record was sent to its topic again; not ``confirmed``: it is unknown whether it arrived."""

    at: datetime
    author: str | None
    confirmed: bool


class RejectedShown(BaseModel):
    """A rejected record, where it lies on the topic of rejected records, and where it stood in its own.

    ``reason`` and what follows it are null for a record that no applier put there.
    """

    partition: int
    offset: int
    rejected_at: datetime | None
    reason: str | None
    message: str | None
    topic: str | None
    source_partition: int | None
    source_offset: int | None
    timestamp: str | None
    """That of the record in its own topic."""
    size: int
    """Bytes of key and value."""
    key: ContentShown | None
    value: ContentShown | None
    redriven: RedrivenShown | None


class RedriveRejected(BaseModel):
    """Which records to send to their topic again; nothing given means all that were not sent before."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"partition": 0, "offset": 12}]})

    partition: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    offset: Offset | None = None
    again: StrictBool = False
    """Also what was sent before: the topic then holds it twice."""
    rate: Rate = USUAL_RATE
    dry_run: StrictBool = False


@router.get("/rejected", responses=LOOKING)
def list_rejected(
    pipeline: PipelineName,  # noqa: ARG001 - the records are of it
    rejections: CurrentRejections,
    limit: Limit = DEFAULT_LIMIT,
    after: Rest = None,
    partition: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only on this partition")] = None,
    offset: Annotated[int | None, Query(ge=0, le=2**62, description="Only at this offset")] = None,
) -> Page[RejectedShown]:
    """Records that could not become rows, about the newest first: a page holds an equal part of each partition.

    A page may hold fewer than `limit`, and there are more as long as `next` is not null.
    """
    found, rest = rejections.page(limit, read_spans(after), partition, offset)
    return Page(items=[_shown(record, mark) for record, mark in found], next=write_spans(rest))


@router.post("/rejected:redrive", dependencies=IDEMPOTENT, responses=SENDING)
def redrive_rejected(
    pipeline: PipelineName,  # noqa: ARG001
    which: RedriveRejected,
    rejections: CurrentRejections,
    caller: CurrentCaller,
    portion: Portion,
) -> SentAgain:
    """Send rejected records to their topic again: key, value and headers byte for byte, to the same partition.

    Each becomes a new record of the topic, so it is sent once: what was sent before is left out, or refused if it is
    named, unless `again` is true. Records of other topics and of other programs are `refused`.
    """
    call = replace(portion, dry_run=which.dry_run, rate=which.rate)
    return sent_again(rejections.redrive(which.partition, which.offset, caller.name, call, again=which.again))


def _shown(record: RejectedRecord, mark: Mark | None) -> RejectedShown:
    origin = record.origin
    return RejectedShown(
        partition=record.partition,
        offset=record.offset,
        rejected_at=record.at,
        reason=None if origin is None else origin.reason[:SHOWN_TEXT],
        message=None if origin is None else origin.message[:SHOWN_TEXT],
        topic=None if origin is None else origin.topic[:SHOWN_TEXT],
        source_partition=None if origin is None else origin.partition,
        source_offset=None if origin is None else origin.offset,
        timestamp=None if origin is None else origin.timestamp[:SHOWN_TEXT] or None,
        size=sum(0 if each is None else each.size for each in (record.key, record.value)),
        key=_content(record.key),
        value=_content(record.value),
        redriven=None if mark is None else RedrivenShown(**vars(mark)),
    )


def _content(content: Excerpt | None) -> ContentShown | None:
    if content is None:
        return None
    return ContentShown(
        size=content.size,
        base64=base64.b64encode(content.beginning).decode(),
        whole=len(content.beginning) == content.size,
        text=content.beginning[: 4 * SHOWN_TEXT].decode(errors="backslashreplace")[:SHOWN_TEXT],
    )
