"""``/v1/pipelines/{p}/destinations``: to change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.control.api.models import (
    Check,
    DestinationId,
    Detail,
    Imported,
    Line,
    OperationStatus,
    PipelineName,
    PutEntry,
    Reseed,
    Rewind,
    Validation,
    detail,
    operation_status,
)
from services.control.api.read_only_fields import require_unchanged
from services.control.model.lifecycle import Refused, Registered
from services.control.model.problems import InvalidEntry
from services.control.operations.destination_entry import Entry
from services.control.operations.destination_service import DestinationService, Done, Same, anything
from services.control.web.conditions import GivenConditions, IfMatch, etag, matching, put_answers, sends
from services.control.web.context import (
    CurrentCaller,
    CurrentDestinations,
    CurrentPipeline,
    PipelineHandle,
    destination_service_of,
    require,
    require_to_reseed,
)
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute, members, strictly
from services.control.web.middleware import MAX_BODY
from services.control.web.problems import FieldProblem, HttpProblem, declared, problem_of, said
from shared.contracts.projection import project

PREFIX = "/v1/pipelines/{pipeline}/destinations"
router = APIRouter(prefix="/v1/pipelines/{pipeline}", tags=["destinations"], route_class=StrictRoute)

MAX_LINES = 10_000
MOST_ENDS = 10 * MAX_LINES
"""Of lines, empty ones among them."""
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


@router.put("/destinations/{destination}", responses={**put_answers(Detail), **declared(*CHANGING)})
def put_destination(
    pipeline: PipelineName,
    destination: DestinationId,
    entry: PutEntry,
    service: CurrentDestinations,
    caller: CurrentCaller,
    handle: CurrentPipeline,
    response: Response,
    given: GivenConditions,
    check: Annotated[bool, Query(description="Check its lake first")] = True,
) -> Detail:
    """Create or change a destination. The same again changes nothing; what GET answers may be sent back."""
    if entry.shown:
        view = handle.view()
        present = detail(view, destination) if destination in view.destinations else None
        require_unchanged(entry.shown, pipeline, present, conditional=given.if_match is not None)
    done = service.put(destination, entry, caller.name, _same(given.if_match), check=check, new=given.new)
    if done.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/pipelines/{pipeline}/destinations/{destination}"
    return shown_done(handle, response, done)


@router.delete("/destinations/{destination}", status_code=204, responses={**STARTED, **declared(*CHANGING)})
def delete_destination(
    pipeline: PipelineName,
    destination: DestinationId,
    service: CurrentDestinations,
    caller: CurrentCaller,
    data: Annotated[Literal["keep", "drop"], Query(description="What happens to its table and cursor")] = "keep",
    if_match: IfMatch = None,
) -> Response:
    """Remove a destination. With `data=drop` its table and cursor are taken away first, which takes a while.

    That needs the scope `drop`.
    """
    if data == "drop":
        require(caller, "drop", "to drop a destination's table")
    done = service.remove(destination, caller.name, _same(if_match), drop=data == "drop")
    return Response(status_code=204) if done.operation is None else _begun(pipeline, done)


ACTIONS = {
    "pause": "Plan nothing for it until it is resumed. An apply in progress is finished.",
    "resume": "Continue after a pause, or try a parked destination again.",
    "stop": "Stop it until it is restarted.",
    "restart": "Continue from its position at once.",
}
"""Actions that are done at once, each at a verb with a colon and, for older clients, with a slash."""


def _acting(action: str) -> Callable[..., Detail]:
    def act(
        pipeline: PipelineName,  # noqa: ARG001 - the handle is of it
        destination: DestinationId,
        service: CurrentDestinations,
        caller: CurrentCaller,
        handle: CurrentPipeline,
        response: Response,
        if_match: IfMatch = None,
    ) -> Detail:
        return shown_done(handle, response, service.act(destination, action, caller.name, _same(if_match)))

    return act


for _action, _means in ACTIONS.items():
    _route = partial(
        router.add_api_route, endpoint=_acting(_action), methods=["POST"], name=f"{_action}_destination",
        description=_means,
    )  # fmt: skip
    _route(f"/destinations/{{destination}}:{_action}", responses=ACTED, dependencies=IDEMPOTENT)
    _route(f"/destinations/{{destination}}/{_action}", include_in_schema=False)


@router.post("/destinations/{destination}/reseed", status_code=202, include_in_schema=False)
@router.post("/destinations/{destination}:reseed", status_code=202, responses={**STARTED, **declared(*CHANGING)},
             dependencies=IDEMPOTENT)  # fmt: skip
def reseed_destination(
    pipeline: PipelineName, destination: DestinationId, service: CurrentDestinations, caller: CurrentCaller,
    asked: Reseed | None = None, if_match: IfMatch = None,
) -> Response:  # fmt: skip
    """Begin a new life with a scan of the source, or with an empty table of a topic's records. It replaces whatever the
    table holds, in one transaction.

    Where that may be rows that Viaduck did not write it needs the scope `drop`.
    """
    require_to_reseed(caller, service, destination)
    earliest = asked is not None and asked.begin == "earliest"
    return _begun(pipeline, service.reseed(destination, caller.name, _same(if_match), earliest=earliest))


@router.post("/destinations/{destination}/rewind", status_code=202, include_in_schema=False)
@router.post("/destinations/{destination}:rewind", status_code=202, dependencies=IDEMPOTENT,
             responses={**STARTED, **declared(*CHANGING, "in_progress", "not_retained")})  # fmt: skip
def rewind_destination(
    pipeline: PipelineName, destination: DestinationId, to: Rewind, service: CurrentDestinations, caller: CurrentCaller,
    if_match: IfMatch = None,
) -> Response:  # fmt: skip
    """Begin a new life at an older snapshot that the source still retains, and go on from there.

    Of a topic, at older offsets by partition: rows of the records from there on are taken out in the same transaction.
    """
    return _begun(pipeline, service.rewind(destination, to.position, caller.name, _same(if_match)))


@router.post(
    "/destinations:validate", dependencies=IDEMPOTENT, responses=declared("not_found", "in_progress", "too_large")
)
def validate_destination(pipeline: PipelineName, entry: Entry, service: CurrentDestinations) -> Validation:  # noqa: ARG001
    """Look at everything that a new destination needs, and write nothing. Its `id` must be in the body."""
    if entry.id is None:
        raise _invalid(FieldProblem(path="id", message="is missing"))
    found = service.validate(entry.id, entry)
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
    caller: CurrentCaller,
    all_or_nothing: Annotated[bool, Query(description="Change nothing if one line fails")] = False,
) -> Imported:
    """Create or change up to 10,000 destinations in one transaction, without looking at their lakes."""
    service = destination_service_of(pipeline, request)
    if "json" not in request.headers.get("content-type", ""):
        hint = "send application/x-ndjson, or an array as application/json"
        raise HttpProblem("not_acceptable", "the body must be NDJSON or JSON", hint)
    body = await request.body()
    return await run_in_threadpool(_import, service, body, caller.name, all_or_nothing)


def _import(service: DestinationService, body: bytes, author: str, all_or_nothing: bool) -> Imported:
    lines = list(_lines(_bounded(body)))
    good = [(number, entry) for number, entry in lines if isinstance(entry, Entry)]
    outcomes: dict[int, Line] = {number: bad for number, bad in lines if isinstance(bad, Line)}
    entries = [(entry.id or "", entry) for _, entry in good]
    done = service.put_all(entries, author, all_or_nothing=all_or_nothing, one_failed=bool(outcomes))
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


def _bounded(body: bytes) -> list[tuple[int, Any]]:
    """Lines, or members, before any of them is looked into: there may be millions. Raises ``HttpProblem``."""
    found = list(islice(_each(body), MAX_LINES + 1))
    if len(found) > MAX_LINES:
        raise _too_many()
    return found


def _too_many() -> HttpProblem:
    return HttpProblem("too_large", f"there are more than {MAX_LINES:,} lines", "send them in parts")


def _lines(each: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Entry | Line]]:
    seen: set[str] = set()
    for number, line in each:
        entry = _entry(line)
        if not isinstance(entry, Entry):
            yield number, _failed(number, None, _invalid(*entry))
            continue
        if entry.id is None or entry.id in seen:
            why = "is missing" if entry.id is None else f"{entry.id} is on an earlier line"
            yield number, _failed(number, entry.id, _invalid(FieldProblem(path="id", message=why)))
            continue
        seen.add(entry.id)
        yield number, entry


def _entry(line: Any) -> Entry | list[FieldProblem]:
    """The entry of a line, or of a member of an array, or what is wrong with it."""
    if isinstance(line, bytes) and len(line) > MAX_BODY:
        return [FieldProblem(path="", message=f"is longer than {MAX_BODY:,} bytes")]
    try:
        return Entry.model_validate(strictly(line) if isinstance(line, bytes) else line)
    except ValidationError as error:
        return [_field(each["loc"], each["msg"]) for each in error.errors(include_url=False, include_input=False)]
    except (ValueError, RecursionError) as error:
        return [FieldProblem(path="", message=f"is no JSON: {error}"[:200])]


def _each(body: bytes) -> Iterator[tuple[int, Any]]:
    """Lines, or the members of an array, which no line is; counted from 1."""
    if not body.lstrip().startswith(b"["):
        if body.count(b"\n") > MOST_ENDS:
            raise _too_many()
        yield from ((number, line) for number, line in enumerate(BytesIO(body), 1) if line.strip())
        return
    try:
        yield from enumerate(members(body, MAX_BODY), 1)
    except (ValueError, RecursionError) as error:
        raise _invalid(FieldProblem(path="body", message=f"is no JSON array: {error}"[:200])) from None


def _line(number: int, entry: Entry, outcome: Done | Refused | InvalidEntry) -> Line:
    if isinstance(outcome, Done):
        return Line(line=number, id=entry.id, status=201 if outcome.created else 200)
    return _failed(number, entry.id, problem_of(outcome))


def _held_back(line: Line) -> Line:
    """A valid line of an import that changed nothing."""
    return _failed(line.line, line.id, HttpProblem("not_applied", "another line failed, so this one was not applied"))


def _failed(number: int, destination: str | None, problem: HttpProblem) -> Line:
    return project(Line, problem.document, line=number, id=destination)


def _invalid(*fields: FieldProblem) -> HttpProblem:
    return HttpProblem("invalid", said(fields), fields=fields)


def _field(location: tuple[int | str, ...], message: str) -> FieldProblem:
    return FieldProblem(path=".".join(map(str, location)), message=message)


def _same(if_match: str | None) -> Same:
    """Whether a destination is still at a version that the asker has seen."""
    accepts = matching(if_match)
    if accepts is None:
        return anything

    def holds_version(held: Registered) -> bool:
        return accepts(held.version)

    return holds_version


def shown_done(handle: PipelineHandle, response: Response, done: Done) -> Detail:
    shown = detail(handle.view(), done.held.id)
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
