"""Which items run together: lanes, jobs and tasks. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.applier.task import Target
from shared.messages import ItemKind, WorkItem

ONE_TASK_TARGETS = 8
"""Up to so many small targets one task is quicker than two: each task reads the range by itself (SPEED §4)."""

ONE_TASK_ROWS = 4_000

APPLY_ROWS = 2_000
"""A transaction costs about as much as writing so many rows; for balancing tasks, no more."""


class Lane(StrEnum):
    """Lanes run beside each other, so that neither a seed, nor upkeep, nor a tenant in trouble holds up changes."""

    CHANGES = "changes"
    SEEDS = "seeds"
    RETRIES = "retries"
    UPKEEP = "upkeep"

    @property
    def is_narrow(self) -> bool:
        """Whether it gets one of Spark's slots, and never all of them: it may take a while."""
        return self in (Lane.RETRIES, Lane.UPKEEP)


OWN_LANE = {ItemKind.SEED: Lane.SEEDS, ItemKind.UPKEEP: Lane.UPKEEP}


@dataclass(frozen=True)
class Job:
    """Items of one pipeline and kind: one Spark job."""

    pipeline: str
    kind: ItemKind
    targets: tuple[Target, ...]


def lane_of(item: WorkItem) -> Lane:
    if item.attempt > 1:
        return Lane.RETRIES
    return OWN_LANE.get(item.kind, Lane.CHANGES)


def jobs(targets: Iterable[Target]) -> list[Job]:
    """One job for each pipeline and kind, in the order in which the first of their items came."""
    grouped: dict[tuple[str, ItemKind], list[Target]] = {}
    for target in targets:
        grouped.setdefault((target.item.pipeline, target.item.kind), []).append(target)
    return [Job(pipeline, kind, tuple(members)) for (pipeline, kind), members in grouped.items()]


def split(targets: Sequence[Target], tasks: int) -> list[tuple[Target, ...]]:
    """Spread targets over at most ``tasks`` tasks, evenly by expected rows, tenants of one lake together.

    Two tasks that write to one SQLite catalog would only lock each other out.
    """
    rows = sum(target.item.rows or 0 for target in targets)
    if tasks < 2 or (len(targets) <= ONE_TASK_TARGETS and rows <= ONE_TASK_ROWS):
        return [tuple(targets)]
    by_lake: dict[str, list[Target]] = {}
    for target in targets:
        by_lake.setdefault(target.lake.catalog, []).append(target)
    shares: list[list[Target]] = [[] for _ in range(tasks)]
    weights = [0] * tasks
    for members in sorted(by_lake.values(), key=_weight, reverse=True):
        lightest = weights.index(min(weights))
        shares[lightest].extend(members)
        weights[lightest] += _weight(members)
    return [tuple(share) for share in shares if share]


def _weight(targets: Sequence[Target]) -> int:
    return sum(APPLY_ROWS + (target.item.rows or 0) for target in targets)
