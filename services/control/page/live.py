"""The page: an overview, the list, each destination with its actions. Events bring what changed, as HTML."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from itertools import count
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from services.control.api.destinations import commits_of
from services.control.api.models import Commit, DestinationId
from services.control.model.lifecycle import Refused
from services.control.model.permitted_actions import permitted
from services.control.operations.destination_service import ACTIONS, DestinationService
from services.control.operations.long_operations import LongOperation
from services.control.page.entry_form import Filled
from services.control.page.login import form
from services.control.page.templates import HEADERS, answer, render, visitor
from services.control.page.truncation import OVERVIEW, PIPELINES, ROWS, event, fitted
from services.control.page.urls import base, handle_here
from services.control.view import lake_health
from services.control.view.destination_status import MOVING, Status, View
from services.control.web.context import CurrentCaller, caller_of, require, require_to_reseed, sources_of
from services.control.web.middleware import is_still_allowed
from services.control.web.page_snapshot import (
    SORTS,
    STATES,
    DestinationQuery,
    PageSnapshot,
    Shown,
    SnapshotCache,
    Sort,
    shown_as,
)
from services.control.web.paging import page
from services.control.web.problems import ANSWERED, HttpProblem
from services.control.web.streams import EventStream

EVERY_S = 1.0
PING_EVERY = 15
JUDGED_EVERY = 5
"""Polls of a stream after which the right of its client is checked again."""

COMMITS = 50
OPERATIONS = 5
"""Of a destination, the newest, of which those that are not over are shown."""
MOST_PIPELINES = 25
"""On one page of the overview."""

overview, router = APIRouter(include_in_schema=False), APIRouter(include_in_schema=False)

MEANS = {
    "pause": "No work is planned until it is resumed. An apply in progress is finished. Its data stays.",
    "resume": "It continues from its position; if it is parked, it is tried again.",
    "stop": "It is stopped until it is restarted. Its data stays.",
    "restart": "It continues from its position at once.",
    "reseed": "A new generation starts: one scan of the source replaces all rows of its table, in one transaction.",
    "rewind": "A new generation starts at an older snapshot, or at older offsets of a topic, that the source still"
    " retains, and continues from there.",
    "remove": "It is removed. Its table and data stay, unless you choose to drop them, which cannot be undone.",
}
BULK = {
    "running": ("pause", "stop"),
    "seeding": ("pause", "stop"),
    "failing": ("restart", "pause", "stop"),
    "parked": ("resume", "pause", "stop"),
    "paused": ("resume", "stop"),
    "stopped": ("restart",),
}
"""Actions for all destinations of a state, those that people look for first."""
OFFSET = re.compile(r"[0-9]{1,18}")
GRAVE = frozenset({"reseed", "rewind", "remove"})


async def asked_of(
    search: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "id",
    after: Annotated[str | None, Query(max_length=1_000)] = None,
    reason: Annotated[str, Query(max_length=200)] = "",
) -> DestinationQuery:
    """What a link or the form on the page asks for; a word that means nothing is as if it were left out."""
    wanted: Shown | None = next((each for each in STATES if each == state), None)
    by: Sort = next((each for each in SORTS if each == sort), "id")
    return DestinationQuery(search, wanted, by, after or None, reason)


CurrentAsked = Annotated[DestinationQuery, Depends(asked_of)]


@overview.get("/", response_class=HTMLResponse)
async def show_all(request: Request, asked: CurrentAsked) -> HTMLResponse:
    """All pipelines; the only one at once."""
    if len(sources_of(request).pipelines()) == 1:
        return await show_list(request, asked)
    rows, following = _pipelines(request, asked)
    return answer(request, "pipelines.html", rows=rows, query=asked.query(asked.after), following=following)


@overview.get("/events")
async def all_events(request: Request, asked: CurrentAsked) -> StreamingResponse:
    if len(sources_of(request).pipelines()) == 1:
        return await list_events(request, asked)
    return _stream(request, ("pipelines", asked), lambda: {"pipelines": _pipelines(request, asked)[0]})


@router.get("/", response_class=HTMLResponse)
async def show_list(request: Request, asked: CurrentAsked) -> HTMLResponse:
    page_snapshot = _snapshots(request).look()
    rows, following = page_snapshot.rows(asked)
    return answer(
        request,
        "list.html",
        pipeline=page_snapshot.pipeline,
        fitting=len(page_snapshot.wanted(asked)),
        base=base(request),
        overview=_overview(page_snapshot),
        rows=_rows(page_snapshot, rows),
        form=Filled().shown(),
        destination=None,
        bulk=_bulk(asked),
        reasons=[name for name, _ in page_snapshot.reasons],
        asked=asked,
        states=STATES,
        sorts=SORTS,
        query=asked.query(asked.after),
        first=asked.query(),
        following=following and asked.query(following),
    )


@router.get("/events")
async def list_events(request: Request, asked: CurrentAsked) -> StreamingResponse:
    snapshots, place = _snapshots(request), base(request)

    def now() -> Mapping[str, str]:
        page_snapshot = snapshots.look()
        rows, _ = page_snapshot.rows(asked)
        return {"overview": _overview(page_snapshot), "rows": _rows(page_snapshot, rows)}

    return _stream(request, (place, asked), now)


@router.get("/pulse")
def pulse(request: Request) -> JSONResponse:
    return JSONResponse(handle_here(request).history.columns)


@router.get("/destinations/{destination}", response_class=HTMLResponse)
def show_one(destination: DestinationId, request: Request) -> HTMLResponse:
    shown, service, view = _status(request, destination), _service(request), handle_here(request).view()
    commits, unseen = _commits(request, destination)
    open_now = [each for each in map(_looked_at(service, view), service.operations.newest(OPERATIONS, destination))
                if each.state in ("running", "failed")]  # fmt: skip
    trail = service.audit_log.entries(COMMITS, destination=destination)
    return answer(request, "detail.html", d=shown, **_facts(view, destination), commits=commits, unseen=unseen,
                  trail=trail, operations=open_now, actions=_permitted(view, shown), base=base(request),
                  grave=GRAVE)  # fmt: skip


def _looked_at(service: DestinationService, view: View) -> Callable[[LongOperation], LongOperation]:
    return lambda operation: service.now_of(operation, view)


def _facts(view: View, destination: str) -> dict[str, Any]:
    """Where it is and how its lake fares, for ``facts.html``: never what is in a variable."""
    held = view.destinations.get(destination)
    failing = destination in view.standings and view.standings[destination].failing
    lake = lake_health.shown(view.pipeline, destination, view.health_of(destination))
    return {"held": held, "failing": failing, "health": lake}


def _permitted(view: View, shown: Status) -> tuple[str, ...]:
    held = view.destinations.get(shown.id)
    failing = shown.error is not None and shown.state in MOVING
    return () if held is None else permitted(held, parked=shown.state == "parked", failing=failing)


@router.get("/events/destinations/{destination}")
async def one_events(destination: DestinationId, request: Request) -> StreamingResponse:
    snapshots, place, looks = _snapshots(request), base(request), visitor(request)

    def now() -> Mapping[str, str]:
        shown = snapshots.look().statuses.get(destination)
        if shown is None:
            return {"detail": "<p>It is removed.</p>", "actions": ""}
        view = handle_here(request).view()
        buttons = render("actions.html", d=shown, actions=_permitted(view, shown), base=place, grave=GRAVE,
                         who=looks)  # fmt: skip
        return {"detail": render("facts.html", d=shown, **_facts(view, destination)), "actions": buttons}

    return _stream(request, (place, destination, looks.may_write, looks.may_log_in), now)


@router.get("/destinations/{destination}/applies")
def applies(destination: DestinationId, request: Request) -> JSONResponse:
    """For the plots: when, rows in, rows out, seconds. A seed would dwarf all that comes after it."""
    commits, _ = _commits(request, destination)
    shown = [(c.at.timestamp(), c.inserted, c.deleted, c.seconds) for c in reversed(commits) if c.kind != "seed"]
    return JSONResponse([list(column) for column in zip(*shown, strict=True)] or [[], [], [], []])


@router.get("/destinations/{destination}/{action}", response_class=HTMLResponse)
def confirm(destination: DestinationId, action: str, request: Request) -> HTMLResponse:
    return _confirm(request, destination, action)


@router.post("/destinations/{destination}/{action}")
async def act(destination: DestinationId, action: str, request: Request, caller: CurrentCaller) -> Response:
    fields = await form(request)
    try:
        if action == "remove" and fields.get("drop") == "yes":
            require(caller, "drop", "to drop a destination's table")
        if action == "reseed":
            require_to_reseed(caller, _service(request), destination)
        await run_in_threadpool(_act, _service(request), destination, action, caller.name, fields)
    except ANSWERED as error:
        refused = f"{error} {error.hint}".rstrip()
    else:
        _snapshots(request).forget()
        place = base(request)
        return RedirectResponse(f"{place}/" if action == "remove" else f"{place}/destinations/{destination}", 303)
    return await run_in_threadpool(_confirm, request, destination, action, refused)


def _act(service: DestinationService, destination: str, action: str, author: str, fields: Mapping[str, str]) -> None:
    if action == "reseed":
        service.reseed(destination, author, earliest=fields.get("from") == "earliest")
    elif action in ACTIONS:
        service.act(destination, action, author)
    elif action == "remove":
        service.remove(destination, author, drop=fields.get("drop") == "yes")
    elif action == "rewind":
        service.rewind(destination, _position(fields.get("to", "")), author)
    else:
        raise HttpProblem("not_found", f"there is no action {action[:40]}")


def _position(text: str) -> int | dict[int, int]:
    """A snapshot, or offsets by partition: ``0=100, 1=98``."""
    if "=" not in text:
        return _number(text)
    pairs = [each.split("=") for each in text.split(",")]
    if not all(len(pair) == 2 and OFFSET.fullmatch(part.strip()) for pair in pairs for part in pair):
        raise Refused("invalid", "offsets are numbers by partition", "enter them like 0=100, 1=98")
    return {int(partition): int(offset) for partition, offset in pairs}


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Refused("invalid", "a snapshot is a number", "enter a snapshot that the source retains")
    return int(text)


def _confirm(request: Request, destination: str, action: str, refused: str | None = None) -> HTMLResponse:
    if action not in MEANS:
        raise HttpProblem("not_found", f"there is no action {action[:40]}")
    shown, grave = _status(request, destination), action in GRAVE
    status = 200 if refused is None else 409
    return answer(request, "confirm.html", status, d=shown, action=action, means=MEANS[action], refused=refused,
                  grave=grave, base=base(request))  # fmt: skip


def _bulk(asked: DestinationQuery) -> tuple[str, ...]:
    """The actions for all listed destinations, if the list is filtered by one state."""
    return BULK.get(asked.state or "", ())


def _overview(page_snapshot: PageSnapshot) -> Markup:
    names = ("pipeline", "worst", "pulse", "states", "reasons")
    shown = {name: getattr(page_snapshot, name) for name in names}
    return fitted("overview.html", OVERVIEW, **shown)


def _rows(page_snapshot: PageSnapshot, rows: Sequence[Status]) -> Markup:
    view = page_snapshot.statuses.view
    shown = [(each, shown_as(view.standings[each.id]), _files(view, each.id)) for each in rows]
    return fitted("rows.html", ROWS, destinations=shown, total=len(page_snapshot.statuses))


def _files(view: View, destination: str) -> int | None:
    known = view.health_of(destination)
    return None if known is None or known.figures is None else known.figures.files


def _pipelines(request: Request, asked: DestinationQuery) -> tuple[Markup, str | None]:
    there = sources_of(request).pipelines()
    names, following = page(there, MOST_PIPELINES, asked.after)
    return fitted(
        "pipeline_rows.html", PIPELINES, pipelines=[there[name].snapshots.look() for name in names]
    ), following


def _commits(request: Request, destination: str) -> tuple[list[Commit], str | None]:
    """The newest commits, or why they can't be seen."""
    try:
        return commits_of(_service(request), handle_here(request).view(), destination, COMMITS), None
    except ANSWERED as error:
        return [], f"{error} {error.hint}"


def _snapshots(request: Request) -> SnapshotCache:
    return handle_here(request).snapshots


def _service(request: Request) -> DestinationService:
    service = handle_here(request).service
    assert service is not None  # noqa: S101 - every pipeline of a running control has one
    return service


def _status(request: Request, destination: str) -> Status:
    shown = _snapshots(request).look().statuses.get(destination)
    if shown is None:
        raise HttpProblem("not_found", f"there is no destination {destination}")
    return shown


def _stream(request: Request, shown: Hashable, now: Callable[[], Mapping[str, str]]) -> StreamingResponse:
    """``now`` makes the parts of what is ``shown``, as HTML; it is the same for all who look at the same."""
    headers, caller = {**HEADERS, "X-Accel-Buffering": "no"}, caller_of(request)
    events = _events(request, (caller.pipelines, shown), now)
    return EventStream(events, request.app.state.streams, caller.name, headers)


async def _events(request: Request, shown: Hashable, now: Callable[[], Mapping[str, str]]) -> AsyncIterator[bytes]:
    """Each part after it changed; a comment now and then, which reveals closed connections."""
    told: dict[str, bytes] = {}
    quiet = 0
    for look in count(1):
        if await request.is_disconnected() or (look % JUDGED_EVERY == 0 and not is_still_allowed(request)):
            return
        parts = await request.app.state.once.soon(shown, lambda: _encoded(now()))
        changed = {name: event for name, event in parts.items() if told.get(name) != event}
        told |= changed
        quiet = 0 if changed else quiet + 1
        if quiet >= PING_EVERY:
            quiet = 0
            yield b": still here\n\n"
        if changed:
            yield b"".join(changed.values())
        await asyncio.sleep(EVERY_S)


def _encoded(parts: Mapping[str, str]) -> dict[str, bytes]:
    """Events by name, as they travel."""
    return {name: event(name, html) for name, html in parts.items()}
