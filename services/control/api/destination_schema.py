"""``…/destinations/{d}/schema``: a destination's columns beside the source's, and what it takes to follow them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from services.control.api.models import DestinationId, PipelineName, require_known
from services.control.operations.destination_schema import SchemaComparison
from services.control.web.context import CurrentSchemas, PipelineView
from services.control.web.problems import declared
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import Problem
from shared.contracts.projection import project
from shared.lake.columns.history import Field

router = APIRouter(prefix="/v1/pipelines/{pipeline}/destinations", tags=["destinations"])

EXAMPLE: dict[str, Any] = {
    "position": 812, "head": 830, "snapshot": 42, "policy": "follow",
    "columns": [
        {"id": 1, "path": ["event_id"], "type": "BIGINT", "default": None, "source_id": 1},
        {"id": 2, "path": ["amount"], "type": "INTEGER", "default": None, "source_id": 3},
    ],
    "source_at_position": [
        {"id": 1, "path": ["event_id"], "type": "BIGINT", "default": None},
        {"id": 3, "path": ["amount"], "type": "INTEGER", "default": None},
    ],
    "source_at_head": [
        {"id": 1, "path": ["event_id"], "type": "BIGINT", "default": None},
        {"id": 3, "path": ["total"], "type": "BIGINT", "default": None},
    ],
    "steps": ["rename amount to total", "widen amount to BIGINT"], "refused": None,
}  # fmt: skip
"""For OpenAPI."""


class SchemaColumn(BaseModel):
    """A column, or a field within one: those within a column come right after it."""

    id: int
    """Its field id, which it keeps when it is renamed or widened. Source and destination have ids of their own."""
    path: list[str]
    """The names that lead to it, the column's own first; `element`, `key` and `value` within lists and maps."""
    type: str
    """As DuckDB declares it."""
    default: str | None
    """What rows show that are older than the column; null for NULL."""


class DestinationColumn(SchemaColumn):
    source_id: int | None
    """The field id of the same column at the source; null where that is not known."""


class DestinationSchema(BaseModel):
    """Both tables' columns, which of them are the same, and what is to be done at the destination."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    position: int | None
    """The destination's position, as its own lake has it; null before its seed, which makes the table."""
    head: int | None
    """The source's newest snapshot; null where the source is a topic."""
    snapshot: int | None
    """The newest snapshot of the destination's lake; null where there is none yet."""
    policy: EvolutionPolicy
    columns: list[DestinationColumn]
    """The destination's own, at `snapshot`; empty where there is no table."""
    source_at_position: list[SchemaColumn] | None
    source_at_head: list[SchemaColumn] | None
    steps: list[str]
    """What is done to follow the source to its head, in order and in the words of stamps; empty for nothing."""
    refused: Problem | None
    """Why that is not followed, and what helps: the destination parks for it, or has."""


@router.get("/{destination}/schema", responses=declared("not_found", "not_visible"))
def show_schema(
    pipeline: PipelineName,  # noqa: ARG001 - the view is of it
    destination: DestinationId,
    view: PipelineView,
    schemas: CurrentSchemas,
) -> DestinationSchema:
    """A destination's columns beside the source's, read from the two catalogs now."""
    return _shown(schemas.of(require_known(view, destination)))


def _shown(found: SchemaComparison) -> DestinationSchema:
    ids = found.following.ids
    own = (
        project(DestinationColumn, field, path=path, type=field.declared, source_id=ids.get(field.id))
        for path, field in _flat(found.columns)
    )
    return project(
        DestinationSchema, found, found.following, columns=list(own),
        source_at_position=_columns(found.at_position), source_at_head=_columns(found.at_head),
        steps=list(found.following.steps),
    )  # fmt: skip


def _columns(fields: Sequence[Field] | None) -> list[SchemaColumn] | None:
    if fields is None:
        return None
    return [project(SchemaColumn, field, path=path, type=field.declared) for path, field in _flat(fields)]


def _flat(fields: Sequence[Field], above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Field]]:
    for field in fields:
        path = (*above, field.name)
        yield [*path], field
        yield from _flat(field.fields, path)
