"""Which snapshots are expired: all that are older than the first which anything holds. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.lake.upkeep.retained import LakeSnapshot, Retained


@dataclass(frozen=True, order=True)
class Hold:
    """A snapshot that must stay, and why."""

    snapshot: int
    why: str


@dataclass(frozen=True)
class Needs:
    """What is known of the destinations: the oldest snapshot that they need, and whose needs are unknown."""

    lowest: Hold | None
    unknown: tuple[str, ...] = ()
    """A line each."""
    pipelines: tuple[str, ...] = ()
    """All that read the lake: the audit trail of each is told."""


@dataclass(frozen=True)
class Plan:
    """What is to go, the oldest first, and the hold that ends it."""

    span: Retained
    held_by: Hold
    snapshots: Sequence[LakeSnapshot]
    is_limited: bool = False
    """More could go, and ``--limit`` is reached."""

    @property
    def through(self) -> int:
        return self.snapshots[-1].id

    @property
    def oldest_kept(self) -> int:
        """Nothing that ends before it is shown by any snapshot that stays."""
        return self.through + 1 if self.is_limited else self.held_by.snapshot

    @property
    def times(self) -> tuple[datetime, datetime]:
        return self.snapshots[0].at, self.snapshots[-1].at


def first_hold(span: Retained, wanted: Iterable[Hold | None]) -> Hold:
    """The oldest snapshot that stays. The head always does."""
    return min([Hold(span.head, "it is the head"), *(each for each in wanted if each is not None)])


def batches(snapshots: Sequence[LakeSnapshot], size: int) -> Iterable[Sequence[LakeSnapshot]]:
    return (snapshots[start : start + size] for start in range(0, len(snapshots), size))
