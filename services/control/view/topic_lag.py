"""How far a destination is behind its topic, by partition: what its reader saw, and what appliers answered."""

from __future__ import annotations

from heapq import nlargest

from pydantic import BaseModel

from services.control.view.frontier import FrontierReport
from services.control.view.observed_state import ObservedLife
from shared.contracts.positions import Vector

MOST_SHOWN = 64
"""Partitions: of more, those that are furthest behind."""


class PartitionLag(BaseModel):
    """One partition of a topic."""

    partition: int
    head: int
    """The offset behind its last stable record."""
    position: int | None
    """The offset up to which the destination is known to hold its records; null before the seed."""
    lag_records: int | None
    """Offsets between the two, which is how many records there are at most; null while the reader is silent."""
    lag_seconds: float | None
    """For how long the oldest of them may have waited; null while that is unknown."""


class TopicLag(BaseModel):
    """A destination beside its topic."""

    lag_records: int | None
    """Over all partitions."""
    partitions: list[PartitionLag]
    """At most 64: of more, those that are furthest behind."""


def topic_lag(report: FrontierReport, seen: ObservedLife | None, *, unsure: bool) -> TopicLag | None:
    """None for a source that is no topic. ``unsure``: what the reader said last may be long past."""
    if report.head_at is None:
        return None
    heads = Vector.parse(report.head_at).by_partition
    reached = None if seen is None or not seen.position_at else _reached(seen, seen.position_at).by_partition
    behind = None if reached is None else {each: max(0, end - reached.get(each, 0)) for each, end in heads.items()}
    shown = [_of(each, heads[each], reached, report.waits.get(each), unsure=unsure) for each in _worst(heads, behind)]
    return TopicLag(lag_records=None if behind is None or unsure else sum(behind.values()), partitions=shown)


def _reached(seen: ObservedLife, position_at: str) -> Vector:
    """The position, or beyond it where an applier read further and found nothing of the destination's."""
    position = Vector.parse(position_at)
    read = Vector.parse(seen.through_at or "{}")
    return read if read.covers(position) else position


def _worst(heads: dict[int, int], behind: dict[int, int] | None) -> list[int]:
    lag = behind or {}
    return sorted(nlargest(MOST_SHOWN, heads, key=lambda each: (lag.get(each, 0), -each)))


def _of(
    partition: int, head: int, reached: dict[int, int] | None, waits: float | None, *, unsure: bool
) -> PartitionLag:
    position = None if reached is None else reached.get(partition, 0)
    lag = None if position is None or unsure else max(0, head - position)
    seconds = 0.0 if lag == 0 else None if lag is None else waits
    return PartitionLag(partition=partition, head=head, position=position, lag_records=lag, lag_seconds=seconds)
