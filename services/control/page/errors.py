"""``/docs/errors``: what a problem's ``type`` points at, explained in the same words as docs/reference/errors.md."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from services.control.model.problems import KINDS, PAGE
from services.control.page.templates import answer

router = APIRouter(include_in_schema=False)


@router.get(PAGE, response_class=HTMLResponse)
def explain(request: Request) -> HTMLResponse:
    return answer(request, "errors.html", kinds=KINDS)
