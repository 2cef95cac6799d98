"""``/add`` and ``…/edit``, of the only pipeline or of the named one: a form for a destination's entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.control.api.models import DestinationId
from services.control.model.declared import as_put
from services.control.model.lifecycle import Registered
from services.control.operations.destination_entry import Entry
from services.control.page.entry_form import Filled, entry_of, filled_with, invalid, written_in
from services.control.page.login import form
from services.control.page.templates import answer
from services.control.page.urls import base, handle_here, service_here
from services.control.web.context import CurrentCaller
from services.control.web.problems import ANSWERED, FieldProblem, HttpProblem, problem_of, said

router = APIRouter(include_in_schema=False)


@router.get("/add", response_class=HTMLResponse)
def show_form(request: Request) -> HTMLResponse:
    return _page(request, Filled())


@router.post("/add")
async def add(request: Request, caller: CurrentCaller) -> Response:
    service, given = service_here(request), written_in(await form(request))

    def put(entry: Entry) -> None:
        service.put(entry.id or "", entry, caller.name, check=True, new=True)

    problem = await run_in_threadpool(_problem, put, given)
    if problem is not None:
        return _page(request, Filled(given, _taken() if problem.kind == "precondition_failed" else problem))
    return _done(request, given["id"])


@router.get("/destinations/{destination}/edit", response_class=HTMLResponse)
def show_entry(destination: DestinationId, request: Request) -> HTMLResponse:
    held = _held(request, destination)
    return _page(request, filled_with(as_put(held.declared), held.version), destination)


@router.post("/destinations/{destination}/edit")
async def edit(destination: DestinationId, request: Request, caller: CurrentCaller) -> Response:
    service, fields = service_here(request), await form(request)
    given, seen = written_in(fields), fields.get("version", "")
    version = int(seen) if seen.isdecimal() and len(seen) < 19 else -1
    own = _held(request, destination).declared.upkeep

    def put(entry: Entry) -> None:
        kept = entry.model_copy(update={"upkeep": own}) if own is not None else entry  # it has no field of its own
        service.put(destination, kept, caller.name, lambda held: held.version == version, check=True)

    problem = await run_in_threadpool(_problem, put, {**given, "id": destination})
    if problem is not None:
        return _page(request, Filled(given, problem, version), destination)
    return _done(request, destination)


def _held(request: Request, destination: str) -> Registered:
    """A destination that can be changed here."""
    held = handle_here(request).view().destinations.get(destination)
    if held is None:
        raise HttpProblem("not_found", f"there is no destination {destination}")
    if held.managed_by == "file":
        raise HttpProblem("declared_by_file", f"the file declares {destination}")
    return held


def _problem(put: Callable[[Entry], None], given: Mapping[str, str]) -> HttpProblem | None:
    """Put it, after a look at its lake. Returns what speaks against it."""
    try:
        put(entry_of(given))
    except ValidationError as error:
        return invalid(error)
    except (HttpProblem, *ANSWERED) as error:
        return problem_of(error)
    return None


def _taken() -> HttpProblem:
    fields = [FieldProblem(path="id", message="is taken by another destination of this pipeline")]
    return HttpProblem("conflict", said(fields), "Choose another one, or edit that destination.", fields)


def _done(request: Request, destination: str) -> Response:
    handle_here(request).snapshots.forget()
    return RedirectResponse(f"{base(request)}/destinations/{destination}", 303)


def _page(request: Request, filled: Filled, destination: str | None = None) -> HTMLResponse:
    name = handle_here(request).view().pipeline
    return answer(request, "add.html", filled.status, pipeline=name, base=base(request), form=filled.shown(),
                  destination=destination)  # fmt: skip
