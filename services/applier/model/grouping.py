"""Which items run together: lanes, jobs and tasks. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.applier.model.task import Target
from shared.contracts.messages import ItemKind, WorkItem

ONE_TASK_TARGETS = 8
"""Up to so many small targets one task is quicker than two: each task reads the range by itself."""

ONE_TASK_ROWS = 4_000

APPLY_ROWS = 2_000
"""A transaction costs about as much as writing so many rows; for balancing tasks, no more."""

UNEVEN = 1.1
"""How much more than its part a task may have, so that lakes stay where they are open: to open one costs an apply."""


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


def split(
    targets: Sequence[Target], tasks: int, homes: Mapping[str, int] | None = None
) -> dict[int, tuple[Target, ...]]:  # fmt: skip
    """Spread targets over at most ``tasks`` tasks, by number, evenly by expected rows, tenants of one lake together.

    Two tasks that write to one SQLite catalog would only lock each other out. ``homes``: in which task each lake was
    before, by its catalog; it stays there unless that makes tasks uneven.
    """
    rows = sum(target.item.rows or 0 for target in targets)
    if tasks < 2 or (len(targets) <= ONE_TASK_TARGETS and rows <= ONE_TASK_ROWS):
        return {0: tuple(targets)}
    by_lake: dict[str, list[Target]] = {}
    for target in targets:
        by_lake.setdefault(target.lake.catalog, []).append(target)
    shares: list[list[Target]] = [[] for _ in range(tasks)]
    weights, most = [0] * tasks, UNEVEN * _weight(targets) / tasks
    for catalog, members in sorted(by_lake.items(), key=lambda lake: _weight(lake[1]), reverse=True):
        weight, home = _weight(members), (homes or {}).get(catalog, tasks)
        place = home if home < tasks and weights[home] + weight <= most else weights.index(min(weights))
        shares[place].extend(members)
        weights[place] += weight
    return {number: tuple(share) for number, share in enumerate(shares) if share}


def _weight(targets: Sequence[Target]) -> int:
    return sum(APPLY_ROWS + (target.item.rows or 0) for target in targets)


def groups_of(targets: Sequence[tuple[int, Target]]) -> list[list[tuple[int, Target]]]:
    """Targets that can share one reading: the same frontier, and the same end where it is exact."""
    groups: dict[tuple[object, ...], list[tuple[int, Target]]] = {}
    for number, target in targets:
        item = target.item
        mode = target.destination.seed_mode if item.kind is ItemKind.SEED else None
        end = (item.through, item.through_at) if item.pinned else None
        begin = item.read_at or item.after_at or item.expected_at or item.after
        key = (begin, item.pinned, end, mode)
        groups.setdefault(key, []).append((number, target))
    return list(groups.values())
