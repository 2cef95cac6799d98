"""``…/destinations/{d}/at``: the snapshot of a destination that shows a moment or a position, and how to read it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict

from services.control.api.models import DestinationId, PipelineName, StampedSnapshot, require_known
from services.control.operations.destination_past import AsOf, ExactSnapshot
from services.control.web.context import CurrentPast, PipelineView
from services.control.web.problems import HttpProblem, declared
from shared.contracts.messages import MOST
from shared.contracts.projection import project

router = APIRouter(prefix="/v1/pipelines/{pipeline}/destinations", tags=["destinations"])

EXAMPLE: dict[str, Any] = {
    "snapshot": 42, "at": "2026-03-01T00:00:03Z", "kind": "changes", "generation": 1, "after": 12, "through": 15,
    "source_at": "2026-02-28T23:59:58Z", "exact_through": 19,
    "columns": [{"name": "event_id", "type": "BIGINT"}, {"name": "company", "type": "VARCHAR"}],
    "select": 'SELECT "event_id", "company" FROM "main"."events" AT (VERSION => 42)', "note": None,
}  # fmt: skip
"""For OpenAPI."""


class ColumnThen(BaseModel):
    name: str
    type: str
    """As DuckDB declares it."""


class SnapshotAsOf(StampedSnapshot):
    """A snapshot of a destination's lake, and the range of the source whose apply made it."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    source_at: datetime | None
    """When the source committed that snapshot; null where the source no longer retains it, or does not answer."""
    exact_through: int
    """Up to this position of the source, nothing of the destination changed: it shows the same rows there."""
    columns: list[ColumnThen]
    select: str
    """Reads it in DuckDB, after `ATTACH 'ducklake:…' AS lake; USE lake`."""
    note: str | None
    """What a reader should know of the snapshot; null for most."""


@router.get("/{destination}/at", responses=declared("not_found", "not_visible", "not_retained"))
def show_as_of(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
    past: CurrentPast,
    time: Annotated[AwareDatetime | None, Query(description="With its offset: `2026-03-01T00:00:00Z`")] = None,
    position: Annotated[int | None, Query(ge=0, le=MOST, description="A snapshot of the source, instead")] = None,
) -> SnapshotAsOf:
    """What a destination had at a moment, or at a position of the source: which of its snapshots shows that."""
    name = require_known(view, destination)
    if time is not None and position is None:
        return _shown(past.at_time(name, time))
    if position is not None and time is None:
        return _shown(past.at_position(name, position))
    raise HttpProblem("invalid", "give either time or position", "?time=2026-03-01T00:00:00Z")


def _shown(found: AsOf) -> SnapshotAsOf:
    past: ExactSnapshot = found.past
    columns = [project(ColumnThen, each) for each in found.columns]
    return project(SnapshotAsOf, past, past.stamp, found, columns=columns)
