"""``/add``, of the only pipeline or of the named one: a form for a destination, and what speaks against it in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from services.control.api.problems import LONGEST, FieldProblem, Problem, said
from services.control.api.state import CurrentAsker
from services.control.api.writes import unfit_problem
from services.control.desk import Desk
from services.control.entry import Entry
from services.control.lifecycle import Refused
from services.control.page.login import form
from services.control.page.place import base, served
from services.control.page.templates import answer
from services.control.problems import KINDS, uri
from services.control.strangers import Unfit
from shared.errors import DependencyError, ViaduckError

router = APIRouter(include_in_schema=False)

FIELDS = ("id", "routing_value", "catalog_env", "catalog", "data_path", "seed_mode")
SEED_MODES = {
    "": "as the pipeline does",
    "scan": "scan: all rows that are there now",
    "replay": "replay: from the oldest snapshot",
    "latest": "latest: only what changes from now on",
}
ID_RULE = "1 to 200 letters, digits and . _ : @ + - with a letter or digit first"


@dataclass(frozen=True)
class Filled:
    """The form as somebody has filled it in, with what speaks against it."""

    values: Mapping[str, str] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def faults(self) -> dict[str, str]:
        """What is wrong with a field of the form, by its name."""
        found = [] if self.problem is None else self.problem.fields
        return {each.path: each.message for each in reversed(found) if each.path in FIELDS}

    @property
    def elsewhere(self) -> list[FieldProblem]:
        """What is wrong with what has no field of its own."""
        return [] if self.problem is None else [each for each in self.problem.fields if each.path not in FIELDS]

    @property
    def status(self) -> int:
        return 200 if self.problem is None else KINDS[self.problem.kind].status

    def shown(self) -> dict[str, Any]:
        """For the templates."""
        problem = self.problem
        told = None if problem is None else {
            "kind": problem.kind, "title": KINDS[problem.kind].title, "page": uri(problem.kind),
            "detail": problem.detail[:LONGEST], "hint": problem.hint or KINDS[problem.kind].hint,
        }  # fmt: skip
        values = {name: self.values.get(name, "") for name in FIELDS}
        return {"values": values, "problem": told, "faults": self.faults, "elsewhere": self.elsewhere,
                "first": next((name for name in FIELDS if name in self.faults), None),
                "seed_modes": SEED_MODES, "id_rule": ID_RULE}  # fmt: skip


@router.get("/add", response_class=HTMLResponse)
def show_form(request: Request) -> HTMLResponse:
    return _page(request, Filled())


@router.post("/add")
async def add(request: Request, asker: CurrentAsker) -> Response:
    given = {name: text for name, text in (await form(request)).items() if name in FIELDS and text}
    problem = await run_in_threadpool(_add, _desk(request), given, asker.name)
    if problem is not None:
        secret = {"catalog"} if problem.kind == "secret_in_request" else set()
        return _page(request, Filled({name: given[name] for name in given if name not in secret}, problem))
    served(request).pane.forget()
    return RedirectResponse(f"{base(request)}/destinations/{given['id']}", 303)


def _add(desk: Desk, given: Mapping[str, str], author: str) -> Problem | None:
    """Create a destination, after a look at its lake. Returns what speaks against it."""
    try:
        entry = Entry.model_validate({"id": "", "routing_value": "", **given})
        desk.put(entry.id or "", entry, author, check=True, new=True)
    except ValidationError as error:
        return _invalid(error)
    except Unfit as unfit:
        return unfit_problem(unfit)
    except Refused as refused:
        return _taken() if refused.type == "precondition_failed" else Problem(refused.type, str(refused), refused.hint)
    except ViaduckError as error:
        return Problem("unavailable", f"{error.type}: {error.message}", error.hint)
    except DependencyError as error:
        return Problem("unavailable", str(error), error.hint)
    return None


def _taken() -> Problem:
    fields = [FieldProblem(path="id", message="is taken by another destination of this pipeline")]
    return Problem("conflict", said(fields), "Choose another one, or change that destination by a PUT.", fields)


def _invalid(error: ValidationError) -> Problem:
    fields = [
        FieldProblem(path=str(each["loc"][0]), message=f"must be {ID_RULE}" if each["loc"][0] == "id" else each["msg"])
        for each in error.errors(include_url=False, include_input=False)
    ]
    return Problem("invalid", said(fields), fields=fields)


def _page(request: Request, filled: Filled) -> HTMLResponse:
    name = served(request).view().pipeline
    return answer(request, "add.html", filled.status, pipeline=name, base=base(request), form=filled.shown())


def _desk(request: Request) -> Desk:
    desk = served(request).desk
    assert desk is not None  # noqa: S101 - every pipeline of a running control has one
    return desk
