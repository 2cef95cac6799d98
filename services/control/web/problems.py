"""Errors as RFC 9457 problem documents, each with a hint and a type that control explains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import Match

from services.control.model.lifecycle import Refused
from services.control.model.problems import BY_STATUS, KINDS, InvalidEntry, uri
from shared.contracts.errors import DependencyError, Error, ViaduckError

MEDIA_TYPE = "application/problem+json"
METHODS = ("GET", "PUT", "POST", "DELETE")
HEADERS: Mapping[int | str, dict[str, Any]] = {
    status: {"headers": {name: {"description": means, "schema": {"type": "string"}}}}
    for status, name, means in (
        (401, "WWW-Authenticate", "Bearer"),
        (405, "Allow", "The methods that the path accepts"),
        (429, "Retry-After", "Seconds"),
        (503, "Retry-After", "Seconds"),
    )
}
VERB = re.compile(r"/destinations/[^/]+:[a-z]+$")
MOST_FIELDS = 100
SOON = {"Retry-After": "5"}
LONGEST = 2_000
"""Characters of a detail: it may quote untrusted input."""


class FieldProblem(BaseModel):
    """What is wrong with one field of a request."""

    path: str
    message: str


class ProblemDocument(BaseModel):
    """RFC 9457, with a ``hint`` and, for 422, the ``fields``."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": uri("secret_in_request"),
                    "title": "A secret in the request",
                    "status": 422,
                    "detail": "catalog: holds a password; name a variable (catalog_env)",
                    "hint": "Name an environment variable instead.",
                    "fields": [
                        {
                            "path": "catalog",
                            "message": "holds a password; name a variable (catalog_env)",
                        }
                    ],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    hint: str
    fields: list[FieldProblem] = []


class HttpProblem(Error):
    """Raised by a route: answered as a problem document. ``kind`` is a key of ``KINDS``."""

    def __init__(
        self, kind: str, detail: str, hint: str | None = None, fields: Sequence[FieldProblem] = (), **headers: str
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.hint = hint
        self.fields = list(fields)
        self.headers: Mapping[str, str] = headers

    @property
    def document(self) -> ProblemDocument:
        return _document(self.kind, self.detail, self.hint, self.fields)


ANSWERED = (InvalidEntry, Refused, DependencyError, ViaduckError)
"""What operations raise for their client to be told."""

WORST = ("secret_in_request", "not_allowed", "check_failed")
"""Kinds of which one names the whole entry, the first before the others."""


def problem_of(error: Exception) -> HttpProblem:
    """One of ``ANSWERED`` as a problem. A ``ViaduckError``: a lake could not be read for this request."""
    match error:
        case HttpProblem():
            return error
        case InvalidEntry():
            fields = [FieldProblem(path=fault.path, message=fault.message) for fault in error.faults]
            kinds = {fault.kind for fault in error.faults}
            return HttpProblem(next((kind for kind in WORST if kind in kinds), "invalid"), str(error), fields=fields)
        case Refused():
            return HttpProblem(error.type, error.message, error.hint)
        case DependencyError():
            return HttpProblem("unavailable", str(error), error.hint, [], **SOON)
        case ViaduckError():
            return HttpProblem("unavailable", f"{error.type}: {error.message}", error.hint, [], **SOON)
    raise error


def document(
    kind: str,
    detail: str,
    hint: str | None = None,
    fields: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
    status: int | None = None,
) -> JSONResponse:
    body = _document(kind, detail, hint, fields, status)
    return JSONResponse(body.model_dump(mode="json"), body.status, dict(headers or {}), MEDIA_TYPE)


def _document(
    kind: str, detail: str, hint: str | None, fields: Sequence[FieldProblem], status: int | None = None
) -> ProblemDocument:
    known = KINDS[kind]
    return ProblemDocument(
        type=uri(kind),
        title=known.title,
        status=status or known.status,
        detail=detail[:LONGEST],
        hint=hint or known.hint,
        fields=list(fields[:MOST_FIELDS]),
    )


def declared(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for OpenAPI."""
    by_status: dict[int | str, list[str]] = {}
    for kind in kinds:
        by_status.setdefault(KINDS[kind].status, []).append(KINDS[kind].means)
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    return {
        status: {"description": " ".join(said), "content": {MEDIA_TYPE: schema}, **HEADERS.get(status, {})}
        for status, said in by_status.items()
    }


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document."""
    for raised in (HttpProblem, *ANSWERED):
        app.add_exception_handler(raised, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


def _problem(_: Request, error: Exception) -> JSONResponse:
    problem = problem_of(error)
    return document(problem.kind, problem.detail, problem.hint, problem.fields, problem.headers)


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - installed for nothing else
    if error.status_code == 400:  # a body that is no JSON, which is as wrong as one with wrong fields
        return document("invalid", str(error.detail), headers=error.headers)
    kind = BY_STATUS.get(error.status_code, "invalid" if error.status_code < 500 else "defect")
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return document(kind, str(error.detail), headers=headers, status=error.status_code)


def _allowed(request: Request) -> str:
    """Every method that the path takes: the router itself names those of the first route that fits alone.

    A name may hold colons, so the path of a verb could be a destination's as well; it is the verb's.
    """
    if VERB.search(request.url.path) and _takes(request, "POST"):
        return "POST"
    taken = {method for method in METHODS if _takes(request, method)}
    taken |= {"HEAD"} if "GET" in taken else set()
    return ", ".join(sorted(taken))


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - installed for nothing else
    found = error.errors()[:MOST_FIELDS]
    fields = [FieldProblem(path=_path(each["loc"]), message=_message(each)) for each in found]
    return document("invalid", said(fields), fields=fields)


def _message(error: Mapping[str, Any]) -> str:
    """A body that is no JSON says in its context why."""
    return f"is no JSON: {error['ctx']['error']}" if error["type"] == "json_invalid" else str(error["msg"])


def _path(location: Sequence[int | str]) -> str:
    """A field of the body by its own name, as our own checks name it; a parameter behind where it stands."""
    if location[0] != "body":
        return ".".join(map(str, location))
    inside = location[1:]
    return ".".join(map(str, inside)) if inside and isinstance(inside[0], str) else "body"


def said(fields: Sequence[FieldProblem]) -> str:
    return "; ".join(f"{field.path}: {field.message}" for field in fields)


def _unexpected(_: Request, __: Exception) -> JSONResponse:
    return document("defect", "an unexpected error occurred")
