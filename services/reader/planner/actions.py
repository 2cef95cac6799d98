"""What the planner wants published."""

from __future__ import annotations

from dataclasses import dataclass

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.scheduling import Draft
from shared.contracts.messages import ItemKind, Outcome, Problem, Seen
from shared.contracts.positions import UNSPELLED
from shared.contracts.routed_by import RoutedBy


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
    routed_by: RoutedBy | None = None
    """By what the destination's generation was declared to be routed."""


@dataclass(frozen=True, slots=True)
class Park:
    """Publish that the reader parked a destination."""

    destination: str
    generation: int
    position: int | None
    problem: Problem
    position_at: str = UNSPELLED


@dataclass(frozen=True, slots=True)
class Republish:
    """Publish once more what became of a destination."""

    about: DestinationState
    kind: ItemKind
    outcome: Outcome
    problem: Problem | None = None


Action = Send | Park
