"""``/healthz``, ``/readyz``, ``/metrics``: for whoever watches the process."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from services.control.api.state import Sources, sources_of
from shared.metrics import CONTENT_TYPE

Current = Annotated[Sources, Depends(sources_of)]


class Health(BaseModel):
    """The process turns."""

    status: str = "ok"


class Ready(BaseModel):
    """Whether every dependency answers, by name; null is fine, a text says what is wrong."""

    status: str
    checks: dict[str, str | None]


router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process turns. It waits for no thread: those may all be busy with lakes that do not answer."""
    return Health()


@router.get("/readyz", responses={503: {"model": Ready, "description": "A dependency does not answer"}})
def readyz(sources: Current, response: Response) -> Ready:
    """Whether what the pipeline depends on answers; a tenant's lake is not among it."""
    checks = dict(sources.checks())
    missing = sorted(name for name, wrong in checks.items() if wrong)
    response.status_code = 503 if missing else 200
    return Ready(status=f"not ready: {', '.join(missing)}" if missing else "ready", checks=checks)


@router.get("/metrics", response_class=Response)
def metrics(sources: Current) -> Response:
    """Prometheus metrics; under `viaduck up` those of all services."""
    return Response(sources.metrics(), media_type=CONTENT_TYPE)
