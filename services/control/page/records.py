"""``/operations`` and ``/audit``, of the only pipeline or of the named one: what takes long, and who did what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from services.control.api.models import OperationStatus, operation_status
from services.control.page.templates import answer
from services.control.page.urls import base, handle_here, pipeline_here, service_here
from services.control.web.page_snapshot import ROWS
from services.control.web.paging import PageAfter, cut, read_id, read_number, write_id, write_number

router = APIRouter(include_in_schema=False)

OfOne = Annotated[str, Query(max_length=200)]


@router.get("/operations", response_class=HTMLResponse)
def show_operations(request: Request, destination: OfOne = "", after: PageAfter = None) -> HTMLResponse:
    found, following = _operations(request, destination, after or None)
    return answer(request, "operations.html", base=base(request), pipeline=pipeline_here(request), operations=found,
                  destination=destination, following=following, now=datetime.now(UTC),
                  query=_query(destination, after), part=False)  # fmt: skip


@router.get("/operations/rows", response_class=HTMLResponse)
def operation_rows(request: Request, destination: OfOne = "", after: PageAfter = None) -> HTMLResponse:
    """For a page that asks every few seconds."""
    found, _ = _operations(request, destination, after or None)
    return answer(request, "operation_rows.html", base=base(request), operations=found, now=datetime.now(UTC))


@router.get("/audit", response_class=HTMLResponse)
def show_audit(request: Request, destination: OfOne = "", after: PageAfter = None) -> HTMLResponse:
    found = service_here(request).audit_log.entries(ROWS + 1, read_number(after or None), destination or None)
    entries, following = cut(found, ROWS, lambda entry: write_number(entry.id))
    return answer(request, "audit.html", base=base(request), pipeline=pipeline_here(request), entries=entries,
                  destination=destination, following=following and _query(destination, following))  # fmt: skip


def _operations(request: Request, destination: str, after: str | None) -> tuple[list[OperationStatus], str | None]:
    service, view = service_here(request), handle_here(request).view()
    newest = service.operations.newest(ROWS + 1, destination or None, read_id(after, service.operations.find))
    found, following = cut(newest, ROWS, lambda operation: write_id(operation.id))
    shown = [operation_status(view.pipeline, service.now_of(each, view)) for each in found]
    return shown, following and _query(destination, following)


def _query(destination: str, after: str | None) -> str:
    given = {"destination": destination, "after": after}
    return urlencode({name: value for name, value in given.items() if value})
