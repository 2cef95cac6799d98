"""The fence as a function: what the stored cursor and an item say together.

The specification has it in ``tla/Fence.tla``. Nothing here reads a lake; ``fence`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.contracts.messages import ItemKind, WorkItem
from shared.contracts.positions import UNSPELLED, SpelledPosition


@dataclass(frozen=True)
class Cursor:
    """A destination's stored position, and of which source table and routing value it speaks."""

    generation: int
    position: int
    source_lake: str
    table_id: int
    table_uuid: str
    routing_value: str
    item: str
    rows_applied: int
    snapshot: int = 0
    """The destination lake's snapshot that committed this position."""
    source_position: str = UNSPELLED
    """The source's own spelling of ``position``."""

    @property
    def reached(self) -> SpelledPosition:
        return SpelledPosition(self.position, self.source_position)


class Decision(StrEnum):
    APPLY = "apply"
    ALREADY_APPLIED = "already_applied"
    GAP = "gap"
    FENCED = "fenced"


def decide(cursor: Cursor | None, item: WorkItem, dropped_generation: int = 0) -> Decision:
    """Whether ``item`` may be applied on top of ``cursor``, or, without one, after a drop in ``dropped_generation``.

    Positions of one generation only grow. A position that covers the item's end means that this range is in the
    table already, through any item; a position that is neither there nor where the item begins is a gap.

    TLA: ``Decide``, ``HasPassed``, ``IsAt``.
    """
    if item.kind is ItemKind.SEED:
        return _decide_seed(cursor, item, dropped_generation)
    if cursor is None:
        return Decision.GAP
    if cursor.generation != item.generation:
        return Decision.FENCED
    if item.kind is ItemKind.PROBE or cursor.reached.covers(item.end):
        return Decision.ALREADY_APPLIED
    return Decision.APPLY if cursor.reached == item.begin else Decision.GAP


def _decide_seed(cursor: Cursor | None, item: WorkItem, dropped_generation: int) -> Decision:
    """A seed begins a generation: it replaces an older life, and is done where its own life has begun.

    A drop takes the cursor away too, so a seed of the life that it ended must not find an empty place.

    TLA: ``DecideSeed``.
    """
    if cursor is None:
        return Decision.APPLY if item.generation > dropped_generation else Decision.FENCED
    if cursor.generation < item.generation:
        return Decision.APPLY
    return Decision.ALREADY_APPLIED if cursor.generation == item.generation else Decision.FENCED
