"""Errors as RFC 9457 problem documents, each with a hint."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"

HINTS = {
    404: "the paths are listed in /openapi.json",
    405: "see /openapi.json for what this path takes",
    500: "see control's log",
}


class FieldProblem(BaseModel):
    """What is wrong with one field of a request."""

    path: str
    message: str


class ProblemDocument(BaseModel):
    """RFC 9457, with a ``hint`` and, for 422, the ``fields``."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str
    fields: list[FieldProblem] = []


class Problem(HTTPException):
    """Raised by a route: answered as a problem document."""

    def __init__(self, status: int, detail: str, hint: str) -> None:
        super().__init__(status, detail)
        self.hint = hint


def document(status: int, detail: str, hint: str, fields: list[FieldProblem] | None = None) -> JSONResponse:
    body = ProblemDocument(
        title=HTTPStatus(status).phrase, status=status, detail=detail, hint=hint, fields=fields or []
    )
    return JSONResponse(body.model_dump(exclude_defaults=False), status, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - installed for nothing else
    hint = error.hint if isinstance(error, Problem) else HINTS.get(error.status_code, "")
    response = document(error.status_code, str(error.detail), hint)
    response.headers.update(error.headers or {})
    return response


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - installed for nothing else
    fields = [FieldProblem(path=".".join(map(str, each["loc"])), message=str(each["msg"])) for each in error.errors()]
    said = "; ".join(f"{field.path}: {field.message}" for field in fields)
    return document(422, said, "correct the fields that are named", fields)


def _unexpected(_: Request, __: Exception) -> JSONResponse:
    return document(500, "something unexpected went wrong", HINTS[500])
