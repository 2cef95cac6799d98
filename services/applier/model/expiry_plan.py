"""Which snapshots of a destination's lake may be expired. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ExpiryPlan:
    """``versions``: the oldest of those that may go, in their order. ``left``: how many more could."""

    versions: tuple[int, ...]
    left: int = 0


def plan(candidates: Sequence[int], kept: Collection[int], most: int) -> ExpiryPlan:
    """``candidates``: old enough, the oldest first. ``kept``: snapshots that must stay. ``most``: of one run."""
    free = [each for each in candidates if each not in kept]
    return ExpiryPlan(tuple(free[:most]), len(free[most:]))
