"""``/healthz``, ``/readyz``, ``/metrics``: for process supervisors and monitoring."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from services.control.web.context import Sources, sources_of
from shared.contracts.messages import now
from shared.runtime.background import standing_still
from shared.runtime.checks import source_check
from shared.runtime.metrics import CONTENT_TYPE

Current = Annotated[Sources, Depends(sources_of)]


class Liveness(BaseModel):
    """Whether the process turns; ``threads``: which of its loops do not, and for how long."""

    status: str = "ok"
    threads: dict[str, str] | None = None


class Ready(BaseModel):
    """Whether every dependency answers, by name; null is fine, a text says what is wrong."""

    status: str
    checks: dict[str, str | None]
    look_age_seconds: dict[str, float | None]
    """By source, how long ago a reader last looked at it with success; null where none has told."""


router = APIRouter(tags=["health"])


@router.get(
    "/healthz",
    response_model_exclude_none=True,
    responses={503: {"model": Liveness, "description": "A loop of the process makes no progress"}},
)
async def healthz(response: Response) -> Liveness:
    """Whether the process turns. It waits for no thread: those may all be busy with lakes that do not answer."""
    still = standing_still()
    if not still:
        return Liveness()
    response.status_code = 503
    return Liveness(status="stands still", threads=still)


@router.get("/readyz", responses={503: {"model": Ready, "description": "A dependency does not answer"}})
def readyz(sources: Current, response: Response) -> Ready:
    """Whether what the pipeline depends on answers; a tenant's lake is not among it."""
    checks = dict(sources.checks())
    missing = sorted(name for name, wrong in checks.items() if wrong)
    response.status_code = 503 if missing else 200
    return Ready(
        status=f"not ready: {', '.join(missing)}" if missing else "ready",
        checks=checks,
        look_age_seconds=_ages(sources),
    )


def _ages(sources: Sources) -> dict[str, float | None]:
    """Two clocks are compared, which may differ by a little."""
    views = [served.view() for served in sources.pipelines().values()]
    alone, at = len(views) == 1, now()
    return {
        source_check(view.pipeline, alone=alone): None
        if view.looked_at is None
        else max(0.0, round((at - view.looked_at).total_seconds(), 3))
        for view in views
    }


@router.get("/metrics", response_class=Response)
def metrics(sources: Current) -> Response:
    """Prometheus metrics; under `viaduck up` those of all services."""
    return Response(sources.metrics(), media_type=CONTENT_TYPE)
