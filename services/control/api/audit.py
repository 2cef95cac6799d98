"""``/v1/audit``: what concerns the deployment and no pipeline: tokens, logins, refusals. For the scope ``admin``."""

from __future__ import annotations

from fastapi import APIRouter, Request

from services.control.api.models import Page
from services.control.store.audit_log import Change
from services.control.web.context import sources_of
from services.control.web.paging import AskedPage, cut, read_number, write_number
from services.control.web.problems import HttpProblem, declared

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("", responses=declared("not_found"))
def list_incidents(request: Request, asked: AskedPage) -> Page[Change]:
    """Tokens that were made and revoked, who logged in, what was refused and what was only validated, newest first."""
    trail = sources_of(request).audit_log
    if trail is None:
        raise HttpProblem("not_found", "this control keeps no audit trail")
    found = trail.entries(asked.limit + 1, read_number(asked.after))
    shown, following = cut(found, asked.limit, lambda entry: write_number(entry.id))
    return Page(items=list(shown), next=following)
