"""What the planner wants published."""

from __future__ import annotations

from dataclasses import dataclass

from services.reader.choose import Draft
from shared.messages import Problem, Seen


@dataclass(frozen=True, slots=True)
class Send:
    """Publish an item."""

    item: str
    destination: str
    generation: int
    draft: Draft
    attempt: int
    rows_applied: int | None = None
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Publish that the reader parked a destination."""

    destination: str
    generation: int
    position: int | None
    problem: Problem


Action = Send | Park
