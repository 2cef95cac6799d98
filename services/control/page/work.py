"""``/work`` and ``/dead-letters``, of the only pipeline or of the named one: to look at, and to send again."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool

from services.control.operations.work_items import ReplayCall, Sent, State, Work, WorkItemFilter
from services.control.page.login import form
from services.control.page.templates import answer
from services.control.page.urls import base, handle_here, pipeline_here
from services.control.web.context import CurrentCaller
from services.control.web.page_snapshot import ROWS
from services.control.web.paging import read_spans, write_spans
from services.control.web.problems import HttpProblem
from shared.config.secrets import scrub
from shared.contracts.messages import ItemKind

router = APIRouter(include_in_schema=False)

STATES: tuple[State, ...] = get_args(State)
KINDS = tuple(kind.value for kind in ItemKind)
SHOWN_PAYLOAD = 200
QueryText = Annotated[str, Query(max_length=200)]


@router.get("/work", response_class=HTMLResponse)
def show_work(request: Request, destination: QueryText = "", state: QueryText = "") -> HTMLResponse:
    wanted = next((each for each in STATES if each == state), None)
    found = _work(request).items(ROWS, WorkItemFilter(destination=destination or None), wanted)
    return answer(request, "work.html", base=base(request), pipeline=pipeline_here(request), items=found,
                  destination=destination, state=wanted, states=STATES)  # fmt: skip


@router.get("/work/replay", response_class=HTMLResponse)
def confirm_replay(request: Request, destination: QueryText = "", kind: QueryText = "") -> HTMLResponse:
    return _replay_page(request, destination, kind)


@router.post("/work/replay")
async def replay(request: Request, caller: CurrentCaller) -> Response:
    fields = await form(request)
    which = _which(fields.get("destination", ""), fields.get("kind", ""))
    rest = read_spans(fields.get("after") or None)
    sent = await run_in_threadpool(partial(_work(request).replay, which, caller.name, ReplayCall(rest=rest)))
    again = {name: fields.get(name, "") for name in ("destination", "kind")}
    return await run_in_threadpool(_sent_page, request, sent, "work items", "work", "work/replay", again)


@router.get("/dead-letters", response_class=HTMLResponse)
def show_dead_letters(request: Request) -> HTMLResponse:
    letters: list[dict[str, Any]] = [
        {"at": record, "it": letter, "payload": _beginning(letter.payload), "reason": scrub(letter.reason)}
        for record, letter in _work(request).dead_letters(ROWS)
    ]
    return answer(request, "letters.html", base=base(request), pipeline=pipeline_here(request), letters=letters)


@router.post("/dead-letters/redrive")
async def redrive(request: Request, caller: CurrentCaller) -> Response:
    fields = await form(request)
    place = _number(fields.get("partition")), _number(fields.get("offset"))
    rest = read_spans(fields.get("after") or None)
    sent = await run_in_threadpool(partial(_work(request).redrive, *place, caller.name, ReplayCall(rest=rest)))
    again = {name: fields.get(name, "") for name in ("partition", "offset")}
    return await run_in_threadpool(
        _sent_page, request, sent, "dead letters", "dead-letters", "dead-letters/redrive", again
    )


def _replay_page(request: Request, destination: str, kind: str) -> HTMLResponse:
    sent = _work(request).replay(_which(destination, kind), "", ReplayCall(dry_run=True))
    return answer(request, "replay.html", base=base(request), pipeline=pipeline_here(request), sent=sent,
                  destination=destination, kind=kind, kinds=KINDS)  # fmt: skip


def _which(destination: str, kind: str) -> WorkItemFilter:
    return WorkItemFilter(destination=destination or None, kind=ItemKind(kind) if kind in KINDS else None)


def _sent_page(
    request: Request, sent: Sent, what: str, back: str, action: str, fields: Mapping[str, str]
) -> HTMLResponse:
    """``action`` and ``fields``: the form that goes on behind these."""
    return answer(request, "sent.html", base=base(request), sent=sent, what=what, back=back, action=action,
                  fields={**fields, "after": write_spans(sent.rest) or ""})  # fmt: skip


def _beginning(payload: str) -> str:
    return scrub(base64.b64decode(payload)[:SHOWN_PAYLOAD].decode(errors="backslashreplace"))


def _number(text: str | None) -> int | None:
    """None where none is given: then all are meant."""
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise HttpProblem("invalid", "partition and offset are numbers")
    return int(text)


def _work(request: Request) -> Work:
    work = handle_here(request).work
    if work is None:
        raise HttpProblem("not_found", "this control does not see the work of this pipeline")
    return work
