"""What the appliers' looks at the catalogs add up to, and how lists of it are sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from shared.contracts.messages import Problem
from shared.contracts.reports import LakeFigures, LakeHealth

UNKNOWN = float("inf")
"""The rank of a lake that was not looked at yet: it comes last, in any order."""

SORTED_BY: Mapping[str, Callable[[LakeFigures], float]] = {
    "files": lambda figures: figures.files,
    "bytes": lambda figures: figures.bytes,
    "rows": lambda figures: figures.rows,
    "delete_files": lambda figures: figures.delete_files,
    "dead_rows": lambda figures: figures.dead_rows,
    "inlined_rows": lambda figures: figures.inlined_rows,
    "small_file_share": lambda figures: figures.small_file_share,
    "old_files": lambda figures: figures.old_files,
    "old_bytes": lambda figures: figures.old_bytes,
    "free_bytes": lambda figures: figures.old_bytes,
    "cleanup_files": lambda figures: figures.cleanup_files,
    "snapshots": lambda figures: figures.snapshots,
    "oldest_age": lambda figures: -figures.oldest_at.timestamp(),
}


@dataclass(frozen=True)
class KnownHealth:
    """The last figures of one life of a destination (of the source: of its table), and the last look if it failed."""

    generation: int | None
    told_at: datetime
    """When the last look ended, by the clock of the applier that looked."""
    figures: LakeFigures | None = None
    looked_at: datetime | None = None
    error: Problem | None = None


def after(before: KnownHealth | None, said: LakeHealth) -> KnownHealth:
    """``before`` and one more look. An older look is ignored, a later generation replaces ``before``."""
    known = before
    if known is None or (said.generation or 0) > (known.generation or 0):
        known = KnownHealth(said.generation, said.at)
    elif (said.generation or 0) < (known.generation or 0) or said.at < known.told_at:
        return known
    if said.figures is None:
        return replace(known, told_at=said.at, error=said.error)
    return replace(known, told_at=said.at, figures=said.figures, looked_at=said.at, error=None)


def rank(known: KnownHealth | None, by: str) -> float:
    """For an ascending sort. ``by``: a key of ``SORTED_BY``, with a minus for the largest first."""
    if known is None or known.figures is None:
        return UNKNOWN
    found = float(SORTED_BY[by.removeprefix("-")](known.figures))
    return -found if by.startswith("-") else found


EXAMPLE: dict[str, Any] = {
    "id": "quacksworth-lake", "pipeline": "events", "looked_at": "2026-01-01T00:00:00Z", "format_version": "1.0",
    "files": 42, "bytes": 81_000_000, "rows": 1_200_000, "delete_files": 3, "dead_rows": 512, "inlined_rows": 0,
    "small_files": 12, "small_file_share": 0.29, "old_files": 118, "old_bytes": 240_000_000, "cleanup_files": 31,
    "snapshots": 900, "oldest_snapshot": 4, "oldest_at": "2025-11-01T00:00:00Z", "oldest_age_seconds": 5_270_400.0,
    "failed_at": None, "error": None,
}  # fmt: skip
"""A destination's health, for OpenAPI."""


class HealthShown(BaseModel):
    """How a destination's table and its lake fare, as its catalog had it at ``looked_at``; null: not looked at yet.

    Where the last look failed, the figures are those of the last look that succeeded, and ``error`` says why.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: str | None
    """Null for the source."""
    pipeline: str
    looked_at: datetime | None = None
    format_version: str | None = None
    """Of the catalog."""
    files: int | None = None
    """Live data files of the table."""
    bytes: int | None = None
    rows: int | None = None
    delete_files: int | None = None
    dead_rows: int | None = None
    """Deleted rows that are still in live files."""
    inlined_rows: int | None = None
    """Rows that the catalog holds instead of files."""
    small_files: int | None = None
    """Live files of up to 16 MB."""
    small_file_share: float | None = None
    old_files: int | None = None
    """Files of the table that only older snapshots show; expiry and clean-up free them."""
    old_bytes: int | None = None
    cleanup_files: int | None = None
    """Files of the whole lake that wait for clean-up. Catalogs do not keep their sizes."""
    snapshots: int | None = None
    """Of the whole lake, as are those that follow."""
    oldest_snapshot: int | None = None
    oldest_at: datetime | None = None
    oldest_age_seconds: float | None = None
    """How old the oldest snapshot was at ``looked_at``, by the catalog's own clock."""
    failed_at: datetime | None = None
    """When the last look failed; null where it did not."""
    error: Problem | None = None


def shown(pipeline: str, destination: str | None, known: KnownHealth | None) -> HealthShown:
    """What users see of it."""
    if known is None:
        return HealthShown(id=destination, pipeline=pipeline)
    figures = known.figures
    values = {} if figures is None else {**figures.model_dump(), "small_file_share": round(figures.small_file_share, 4)}
    failed_at = None if known.error is None else known.told_at
    return HealthShown(
        id=destination, pipeline=pipeline, looked_at=known.looked_at, failed_at=failed_at, error=known.error, **values
    )
