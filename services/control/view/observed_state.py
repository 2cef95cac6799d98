"""What the answers about one destination add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shared.contracts.messages import CommitPath, ItemKind, Outcome, Problem, Progress

KEPT = 50
"""Applies of a destination whose durations are kept, the newest: control holds them in memory for every destination."""

CLOCKS_DIFFER = timedelta(minutes=2)

APPLYING = frozenset({ItemKind.SEED, ItemKind.CHANGES, ItemKind.ADVANCE})
"""What moves a position, and so can be told apart by it."""

UNHAPPY = frozenset({Outcome.FAILED, Outcome.PARKED})


@dataclass(frozen=True)
class ObservedLife:
    """One generation of a destination, as reported on the progress topic. Unreported fields are None."""

    generation: int
    at: datetime
    """When the last answer was given, by the clock of who gave it."""
    position: int | None = None
    position_at: str | None = None
    """The source's own spelling of ``position``, where it has one."""
    through: int | None = None
    """Up to where an applier found it exact, where that is beyond the position."""
    through_at: str | None = None
    """The source's own spelling of where an applier last found nothing of the destination's, where it has one."""
    rows_applied: int | None = None
    last_applied_at: datetime | None = None
    commit: CommitPath | None = None
    """Who made the commit of ``position``; None where its answer was not heard, or does not say."""
    commit_reason: str | None = None
    """Why DuckLake's extension made it, where Viaduck would have otherwise."""
    error: Problem | None = None
    since: datetime | None = None
    """When the first answer with this type of error came."""
    parked: bool = False
    took: tuple[tuple[int, float], ...] = ()
    """Of the newest applies: the position that each reached, and the seconds that it took to read and to apply."""


def is_past(seen: ObservedLife | None, progress: Progress) -> bool:
    """Whether an answer is of a time of which more was heard since: read from an old partition, or sent once more.

    Appliers' clocks differ, so a little older is not old, and what goes further is news at any rate.
    """
    if seen is None or progress.generation > seen.generation or progress.outcome is Outcome.FENCED:
        return False
    reached = max((each for each in (progress.position, progress.through) if each is not None), default=-1)
    known = max((each for each in (seen.position, seen.through) if each is not None), default=-1)
    is_older = seen.at - progress.at > CLOCKS_DIFFER
    return is_older and (progress.generation < seen.generation or reached <= known)


def after(seen: ObservedLife | None, progress: Progress) -> ObservedLife | None:
    """``seen`` with one more answer. An older generation is ignored; a later one replaces ``seen``."""
    if progress.outcome is Outcome.FENCED:
        return seen  # its generation is the cursor's, and it says nothing about our own life
    if seen is not None and progress.generation < seen.generation:
        return seen
    before = seen
    if before is None or progress.generation > before.generation:
        before = ObservedLife(progress.generation, progress.at)
    return _complained(_moved(before, progress), before, progress)


def _moved(before: ObservedLife, progress: Progress) -> ObservedLife:
    applied = progress.outcome is Outcome.APPLIED
    # An answer that comes twice or late must not take a position back; a look at the cursor itself may.
    looked = progress.outcome is Outcome.GAP or progress.kind is ItemKind.PROBE
    position = _or(progress.position, before.position) if looked else _furthest(before.position, progress.position)
    commit, commit_reason = _who_committed(position, before, progress)
    return replace(
        before,
        at=progress.at,
        position=position,
        position_at=_spelled(position, before, progress),
        through=None if progress.outcome is Outcome.GAP else _furthest(before.through, progress.through),
        through_at=None if progress.outcome is Outcome.GAP else progress.through_at or before.through_at,
        rows_applied=_or(progress.rows_applied, before.rows_applied),
        last_applied_at=progress.at if applied else before.last_applied_at,
        commit=commit,
        commit_reason=commit_reason,
        took=_timed(before.took, progress) if applied else before.took,
    )


def _spelled(position: int | None, before: ObservedLife, progress: Progress) -> str | None:
    """How the source spells the position; an answer of before that was kept may not tell."""
    if position == progress.position and progress.position_at is not None:
        return progress.position_at
    return before.position_at if position == before.position else None


def _who_committed(
    position: int | None, before: ObservedLife, progress: Progress
) -> tuple[CommitPath | None, str | None]:
    """Who made the commit that reached the position, and why; unknown where only a look at the cursor has shown it."""
    applied = progress.outcome is Outcome.APPLIED and progress.kind in APPLYING
    if applied and progress.position == position:
        return progress.commit, progress.commit_reason
    return (before.commit, before.commit_reason) if position == before.position else (None, None)


def _timed(took: tuple[tuple[int, float], ...], progress: Progress) -> tuple[tuple[int, float], ...]:
    if progress.position is None or not progress.seconds or progress.kind not in APPLYING:
        return took
    others = tuple(each for each in took if each[0] != progress.position)
    return (*others, (progress.position, _seconds(progress.seconds)))[-KEPT:]


def _seconds(phases: Mapping[str, float]) -> float:
    """The total, where it is told; else the phases follow one another."""
    return phases.get("total", sum(phases.values()))


def _complained(moved: ObservedLife, before: ObservedLife, progress: Progress) -> ObservedLife:
    error = progress.error if progress.outcome in UNHAPPY else None
    same = error is not None and before.error is not None and error.type == before.error.type
    since = None if error is None else before.since if same else progress.since or progress.at
    return replace(moved, error=error, since=since, parked=progress.outcome is Outcome.PARKED)


def _or(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _furthest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
