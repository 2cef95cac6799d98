"""``/v1/pipelines/{p}/destinations``: to change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.control.api.destinations import shown_detail
from services.control.api.models import (
    Check,
    DestinationId,
    Detail,
    Imported,
    Line,
    OperationStatus,
    PipelineName,
    Rewind,
    Validation,
    operation_status,
)
from services.control.api.read_only_fields import PutEntry, require_unchanged
from services.control.model.lifecycle import Refused, Registered
from services.control.operations.destination_entry import Entry
from services.control.operations.destination_service import DestinationService, Done, Same, anything
from services.control.operations.input_validation import InvalidEntry
from services.control.web.conditions import IfMatch, IfNoneMatch, etag, matching, sends
from services.control.web.context import CurrentAsker, CurrentDesk, desk_of, pipeline_view, require
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute, strictly
from services.control.web.problems import FieldProblem, Problem, declared, said

PREFIX = "/v1/pipelines/{pipeline}/destinations"
router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["destinations"], route_class=StrictRoute)

MAX_LINES = 10_000
LINES = "".join(
    json.dumps({"id": f"{value}-lake", "routing_value": value, "catalog": f"sqlite:/lakes/{value}.sqlite"}) + "\n"
    for value in ("quacksworth", "mallard")
)
"""An import, for OpenAPI."""
ARRAY = {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}, "maxItems": MAX_LINES}

CHANGING = ("not_found", "declared_by_file", "precondition_failed", "too_large")
ACTED: dict[int | str, dict[str, Any]] = {200: sends("ETag"), **declared(*CHANGING, "in_progress")}
STARTED: dict[int | str, dict[str, Any]] = {
    202: {"description": "It has begun; Location names the operation.", "model": OperationStatus, **sends("Location")}
}


@router.put(
    "/destinations/{destination}",
    responses={
        200: sends("ETag"),
        201: {"description": "It was created.", "model": Detail, **sends("ETag", "Location")},
        **declared(*CHANGING),
    },
)
def put_destination(
    pipeline: PipelineName,
    destination: DestinationId,
    entry: PutEntry,
    desk: CurrentDesk,
    asker: CurrentAsker,
    request: Request,
    response: Response,
    check: Annotated[bool, Query(description="Look at its lake first")] = True,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Detail:
    """Create or change a destination. The same again changes nothing; what GET answers may be sent back."""
    if entry.shown:
        view = pipeline_view(pipeline, request)
        present = shown_detail(view, destination) if destination in view.destinations else None
        require_unchanged(entry.shown, pipeline, present, conditional=if_match is not None)
    try:
        done = desk.put(destination, entry, asker.name, _same(if_match), check=check, new=if_none_match is not None)
    except InvalidEntry as unfit:
        raise unfit_problem(unfit) from None
    if done.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/pipelines/{pipeline}/destinations/{destination}"
    return shown_done(pipeline, request, response, done)


@router.delete("/destinations/{destination}", status_code=204, responses={**STARTED, **declared(*CHANGING)})
def delete_destination(
    pipeline: PipelineName,
    destination: DestinationId,
    desk: CurrentDesk,
    asker: CurrentAsker,
    data: Annotated[Literal["keep", "drop"], Query(description="What becomes of its table and cursor")] = "keep",
    if_match: IfMatch = None,
) -> Response:
    """Remove a destination. With `data=drop` its table and cursor are taken away first, which takes a while.

    That needs the scope `drop`.
    """
    if data == "drop":
        require(asker, "drop", "to drop a destination's table")
    done = desk.remove(destination, asker.name, _same(if_match), drop=data == "drop")
    return Response(status_code=204) if done.operation is None else _begun(pipeline, done)


@router.post("/destinations/{destination}/pause", include_in_schema=False)
@router.post("/destinations/{destination}:pause", responses=ACTED, dependencies=IDEMPOTENT)
def pause_destination(
    pipeline: PipelineName, destination: DestinationId, desk: CurrentDesk, asker: CurrentAsker, request: Request,
    response: Response, if_match: IfMatch = None,
) -> Detail:  # fmt: skip
    """Plan nothing for it until it is resumed. What is being applied now is finished."""
    return shown_done(pipeline, request, response, desk.act(destination, "pause", asker.name, _same(if_match)))


@router.post("/destinations/{destination}/resume", include_in_schema=False)
@router.post("/destinations/{destination}:resume", responses=ACTED, dependencies=IDEMPOTENT)
def resume_destination(
    pipeline: PipelineName, destination: DestinationId, desk: CurrentDesk, asker: CurrentAsker, request: Request,
    response: Response, if_match: IfMatch = None,
) -> Detail:  # fmt: skip
    """Go on after a pause, or try a parked destination again."""
    return shown_done(pipeline, request, response, desk.act(destination, "resume", asker.name, _same(if_match)))


@router.post("/destinations/{destination}/stop", include_in_schema=False)
@router.post("/destinations/{destination}:stop", responses=ACTED, dependencies=IDEMPOTENT)
def stop_destination(
    pipeline: PipelineName, destination: DestinationId, desk: CurrentDesk, asker: CurrentAsker, request: Request,
    response: Response, if_match: IfMatch = None,
) -> Detail:  # fmt: skip
    """Switch it off until it is restarted."""
    return shown_done(pipeline, request, response, desk.act(destination, "stop", asker.name, _same(if_match)))


@router.post("/destinations/{destination}/restart", include_in_schema=False)
@router.post("/destinations/{destination}:restart", responses=ACTED, dependencies=IDEMPOTENT)
def restart_destination(
    pipeline: PipelineName, destination: DestinationId, desk: CurrentDesk, asker: CurrentAsker, request: Request,
    response: Response, if_match: IfMatch = None,
) -> Detail:  # fmt: skip
    """Go on from wherever it is, at once."""
    return shown_done(pipeline, request, response, desk.act(destination, "restart", asker.name, _same(if_match)))


@router.post("/destinations/{destination}/reseed", status_code=202, include_in_schema=False)
@router.post("/destinations/{destination}:reseed", status_code=202, responses={**STARTED, **declared(*CHANGING)},
             dependencies=IDEMPOTENT)  # fmt: skip
def reseed_destination(
    pipeline: PipelineName, destination: DestinationId, desk: CurrentDesk, asker: CurrentAsker,
    if_match: IfMatch = None,
) -> Response:  # fmt: skip
    """Begin a new life with a scan of the source. It replaces whatever the table holds, in one transaction."""
    return _begun(pipeline, desk.act(destination, "reseed", asker.name, _same(if_match)))


@router.post("/destinations/{destination}/rewind", status_code=202, include_in_schema=False)
@router.post("/destinations/{destination}:rewind", status_code=202, dependencies=IDEMPOTENT,
             responses={**STARTED, **declared(*CHANGING, "in_progress", "not_retained")})  # fmt: skip
def rewind_destination(
    pipeline: PipelineName, destination: DestinationId, to: Rewind, desk: CurrentDesk, asker: CurrentAsker,
    if_match: IfMatch = None,
) -> Response:  # fmt: skip
    """Begin a new life at an older snapshot that the source still retains, and go on from there."""
    return _begun(pipeline, desk.rewind(destination, to.to, asker.name, _same(if_match)))


@router.post(
    "/destinations:validate", dependencies=IDEMPOTENT, responses=declared("not_found", "in_progress", "too_large")
)
def validate_destination(pipeline: PipelineName, entry: Entry, desk: CurrentDesk) -> Validation:  # noqa: ARG001
    """Look at everything that a new destination needs, and write nothing. Its `id` must be in the body."""
    if entry.id is None:
        raise _invalid(FieldProblem(path="id", message="is missing"))
    try:
        found = desk.validate(entry.id, entry)
    except InvalidEntry as unfit:
        raise unfit_problem(unfit) from None
    return Validation(valid=not any(each.ok is False for each in found), checks=[Check(**vars(each)) for each in found])


@router.post(
    "/destinations:import",
    dependencies=IDEMPOTENT,
    responses=declared("not_found", "in_progress", "too_large", "not_acceptable"),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The keys of a `destinations` entry, `id` included: one JSON object a line, or an array.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}, "example": LINES},
                "application/json": {"schema": ARRAY, "example": [json.loads(line) for line in LINES.splitlines()]},
            },
        }
    },
)
async def import_destinations(
    pipeline: PipelineName,
    request: Request,
    asker: CurrentAsker,
    all_or_nothing: Annotated[bool, Query(description="Change nothing where one line fails")] = False,
) -> Imported:
    """Create or change up to 10,000 destinations in one transaction, without looking at their lakes."""
    desk = desk_of(pipeline, request)
    if "json" not in request.headers.get("content-type", ""):
        hint = "send application/x-ndjson, or an array as application/json"
        raise Problem("not_acceptable", "the body must be NDJSON or JSON", hint)
    body = await request.body()
    return await run_in_threadpool(_import, desk, body, asker.name, all_or_nothing)


def _import(desk: DestinationService, body: bytes, author: str, all_or_nothing: bool) -> Imported:
    lines = list(_lines(body))
    if len(lines) > MAX_LINES:
        raise Problem("too_large", f"{len(lines):,} lines are more than {MAX_LINES:,}", "send them in parts")
    good = [(number, entry) for number, entry in lines if isinstance(entry, Entry)]
    outcomes: dict[int, Line] = {number: bad for number, bad in lines if isinstance(bad, Line)}
    entries = [(entry.id or "", entry) for _, entry in good]
    done = desk.put_all(entries, author, all_or_nothing=all_or_nothing, one_failed=bool(outcomes))
    outcomes |= {number: _line(number, entry, each) for (number, entry), each in zip(good, done, strict=True)}
    failed = sum(each.status >= 400 for each in outcomes.values())
    applied = not (failed and all_or_nothing)
    if not applied:
        outcomes = {number: each if each.status >= 400 else _held_back(each) for number, each in outcomes.items()}
    shown = [outcomes[number] for number in sorted(outcomes)]
    return Imported(
        applied=applied,
        created=sum(each.status == 201 for each in shown),
        changed=sum(each.status == 200 for each in shown),
        failed=failed,
        lines=shown,
    )


def _lines(body: bytes) -> Iterator[tuple[int, Entry | Line]]:
    seen: set[str] = set()
    for number, line in _each(body):
        entry = _entry(line)
        if not isinstance(entry, Entry):
            yield number, _failed(number, None, _invalid(*entry))
            continue
        if entry.id is None or entry.id in seen:
            why = "is missing" if entry.id is None else f"{entry.id} is on a line before"
            yield number, _failed(number, entry.id, _invalid(FieldProblem(path="id", message=why)))
            continue
        seen.add(entry.id)
        yield number, entry


def _entry(line: Any) -> Entry | list[FieldProblem]:
    """The entry of a line, or of a member of an array, or what is wrong with it."""
    try:
        return Entry.model_validate(strictly(line) if isinstance(line, bytes) else line)
    except ValidationError as error:
        return [_field(each["loc"], each["msg"]) for each in error.errors(include_url=False, include_input=False)]
    except (ValueError, RecursionError) as error:
        return [FieldProblem(path="", message=f"is no JSON: {error}"[:200])]


def _each(body: bytes) -> Iterator[tuple[int, Any]]:
    """Lines, or the members of an array, which no line is; counted from 1."""
    if not body.lstrip().startswith(b"["):
        yield from ((number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip())
        return
    try:
        members = strictly(body)
    except (ValueError, RecursionError) as error:
        raise _invalid(FieldProblem(path="body", message=f"is no JSON array: {error}"[:200])) from None
    yield from enumerate(members, 1)


def _line(number: int, entry: Entry, outcome: Done | Refused | InvalidEntry) -> Line:
    if isinstance(outcome, Done):
        return Line(line=number, id=entry.id, status=201 if outcome.created else 200)
    if isinstance(outcome, Refused):
        return _failed(number, entry.id, Problem(outcome.type, outcome.message, outcome.hint))
    return _failed(number, entry.id, unfit_problem(outcome))


def _held_back(line: Line) -> Line:
    """One that nothing speaks against, of an import of which nothing was changed."""
    return _failed(line.line, line.id, Problem("not_applied", "another line failed, so this one was not applied"))


def _failed(number: int, id: str | None, problem: Problem) -> Line:
    told = problem.document
    return Line(
        line=number, id=id, status=told.status, type=told.type, detail=told.detail, hint=told.hint, fields=told.fields
    )


def _invalid(*fields: FieldProblem) -> Problem:
    return Problem("invalid", said(fields), fields=fields)


def _field(location: tuple[int | str, ...], message: str) -> FieldProblem:
    return FieldProblem(path=".".join(map(str, location)), message=message)


def _same(if_match: str | None) -> Same:
    """Whether a destination is still at a version that the asker has seen."""
    accepts = matching(if_match)
    if accepts is None:
        return anything

    def same(held: Registered) -> bool:
        return accepts(held.version)

    return same


def unfit_fields(unfit: InvalidEntry) -> list[FieldProblem]:
    return [FieldProblem(path=fault.path, message=fault.message) for fault in unfit.faults]


def unfit_problem(unfit: InvalidEntry) -> Problem:
    fields = unfit_fields(unfit)
    kinds = [fault.kind for fault in unfit.faults]
    kind = next((kind for kind in ("secret_in_request", "not_allowed", "check_failed") if kind in kinds), "invalid")
    return Problem(kind, said(fields), fields=fields)


def shown_done(pipeline: str, request: Request, response: Response, done: Done) -> Detail:
    shown = shown_detail(pipeline_view(pipeline, request), done.held.id)
    response.headers["ETag"] = etag(shown.version)
    return shown


def _begun(pipeline: str, done: Done) -> Response:
    if done.operation is None:
        raise Refused(
            "being_removed", f"{done.held.id} is being removed already", "GET …/operations lists its operation"
        )
    body = operation_status(pipeline, done.operation)
    place = f"/v1/pipelines/{pipeline}/operations/{body.id}"
    return Response(body.model_dump_json(), 202, {"Location": place}, "application/json")
