"""Why a destination is parked by the reader itself: what it sees of the source leaves no way on."""

from __future__ import annotations

from collections.abc import Sequence, Set

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.scheduling import LogState, SourceState
from shared.contracts.errors import SourceError
from shared.contracts.messages import Problem
from shared.contracts.positions import Vector
from shared.contracts.ranges import NOT_SEEDED

RECREATED, MOVED = "source_recreated", "source_moved"
CUT_OFF = (RECREATED, MOVED, "schema_change")
MOST_NAMED = 5
"""Partitions that a message names."""

RESEED = "reseed the destination; routing.on_gap: reseed does so by itself"


def judge(tracked: DestinationState, observed: SourceState, gone: Set[int] = frozenset()) -> Problem | None:
    """What is wrong with going on from where ``tracked`` is; None if nothing is. ``gone``: snapshots that expired.

    An item in flight may have moved it already, so its answer comes first. TLA: ``Judge``.
    """
    if tracked.position is None or not tracked.is_seeded or not tracked.is_running or tracked.in_flight is not None:
        return None
    if tracked.position < observed.born:
        return recreated(f"it was created at snapshot {observed.born}, after position {tracked.position}")
    if tracked.exact < observed.oldest or tracked.exact in gone:
        return expired(tracked.exact, observed.oldest)
    if (
        observed.log is not None
        and not observed.log.skips
        and (lost := behind(tracked.exact_vector, observed.log.oldest))
    ):
        return records_gone(lost)
    for broken in observed.breaks:
        if broken.refuses(tracked.position, tracked.spec.policy):
            return broken.error(tracked.position).problem()
    return None


def cannot_begin(tracked: DestinationState, observed: SourceState, gone: Set[int] = frozenset()) -> Problem | None:
    """What is wrong with beginning where an operator wants a life to begin; None if nothing is."""
    start = tracked.spec.seed_at
    if start is None or tracked.position != NOT_SEEDED or not tracked.is_running or tracked.in_flight is not None:
        return None
    if observed.log is not None:
        to = tracked.spec.rewound_to
        lost = [] if to is None or observed.log.skips else behind(to, observed.log.oldest)
        return records_gone(lost) if lost else None
    if start < observed.born:
        return recreated(f"it was created at snapshot {observed.born}, after {start}, to which this one is rewound")
    if start < observed.oldest or start in gone:
        return expired(start, observed.oldest)
    return None


def is_cut_off(tracked: DestinationState, observed: SourceState | None) -> bool:
    """Whether what is counted now tells nothing of the destination: it was filled from another table, from another
    history of it, or before its columns changed."""
    if tracked.parked is not None and tracked.parked.type in CUT_OFF:
        return True
    return observed is not None and tracked.position is not None and tracked.position < observed.born


def contradiction(tracked: DestinationState, before: SourceState | None, observed: SourceState) -> Problem | None:
    """What a fresh look at the source makes impossible; an older look than the destination's answer would not do."""
    if not tracked.is_seeded:
        return None
    if observed.log is not None:
        return _contradicts_log(tracked, before, observed, observed.log)
    if before is not None and before.lake != observed.lake:
        return recreated("another lake is at its place")
    if tracked.position is not None and tracked.position > observed.head:
        return undone(f"its head is snapshot {observed.head}, and this destination is at {tracked.position} already")
    return None


def _contradicts_log(
    tracked: DestinationState, before: SourceState | None, observed: SourceState, log: LogState
) -> Problem | None:
    if before is not None and (before.lake, before.table) != (observed.lake, observed.table):
        return recreated("the topic was deleted and created again, or another cluster is at its place")
    ahead = behind(log.newest, tracked.exact_vector)
    if not ahead:
        return None
    partition, newest, position = ahead[0]
    return undone(f"partition {partition} ends at offset {newest}, and this destination is at {position} already")


def behind(position: Vector, other: Vector) -> list[tuple[int, int, int]]:
    """Partition and both offsets wherever a vector lies behind the other."""
    mine = position.by_partition
    return [(each, mine.get(each, 0), offset) for each, offset in other.offsets if mine.get(each, 0) < offset]


def records_gone(lost: Sequence[tuple[int, int, int]]) -> Problem:
    named = ", ".join(f"partition {each}: offsets {first} to {oldest - 1}" for each, first, oldest in lost[:MOST_NAMED])
    count = sum(oldest - first for _, first, oldest in lost)
    message = f"the topic no longer keeps records that this destination has not read: {named}; up to {count} are gone"
    hint = (
        "reseed the destination (source.on_gap: reseed does so by itself), or go on without them (source.on_gap: skip)."
        " Keep records for longer than the longest pause"
    )
    return SourceError("history_expired", message, hint).problem()


def is_same_table(before: SourceState, observed: SourceState) -> bool:
    """Whether two looks saw the same table, with the same columns."""
    known = before.lake, before.table, before.born, before.breaks
    return known == (observed.lake, observed.table, observed.born, observed.breaks)


def undone(why: str) -> Problem:
    message = f"the source's history is not the one this destination was filled from: {why}"
    return SourceError(MOVED, message, RESEED).problem()


def recreated(why: str) -> Problem:
    message = f"the source table is not the one this destination was filled from: {why}"
    return SourceError(RECREATED, message, RESEED).problem()


def expired(exact: int, oldest: int) -> Problem:
    message = (
        f"the source no longer keeps snapshot {exact}, up to which this destination is exact; the oldest is {oldest}"
    )
    hint = f"{RESEED}. Keep the source's snapshots for longer than the longest pause"
    return SourceError("history_expired", message, hint).problem()
