"""What waits in a lane: which items of a destination still count, and which of them go first. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from services.applier.model.immediate_answers import REACHING
from services.applier.outbox import Place
from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem

CONCERNS_OTHERS = frozenset({Outcome.FAILED, Outcome.PARKED, Outcome.FENCED})
"""Outcomes that hold for earlier items of the destination, too. A gap does not: theirs may be where the cursor is."""


@dataclass(frozen=True)
class WaitingItem:
    """An item, where it came from, and since when it waits (monotonic seconds)."""

    item: WorkItem
    place: Place
    since: float


def repeats(newer: WorkItem, older: WorkItem) -> bool:
    """Whether an item asks for the same as an earlier one, so that one answer serves both."""

    def asked(item: WorkItem) -> tuple[object, ...]:
        return item.key, item.kind, item.generation, item.begin, item.after, item.pinned

    return newer.attempt > older.attempt and asked(newer) == asked(older)


def choose(waiting: Iterable[WaitingItem], is_stale: Callable[[WorkItem], bool], most: int) -> list[WaitingItem]:
    """The next items, at most ``most`` and one per destination: the one with the furthest end, since it
    answers for the others. Items that are out of date (``is_stale``) come after all others.
    """
    best: dict[str, WaitingItem] = {}
    for each in waiting:
        held = best.get(each.item.key)
        if held is None or reaches_further(each.item, held.item):
            best[each.item.key] = each
    return sorted(best.values(), key=lambda each: is_stale(each.item))[:most]


def reaches_further(one: WorkItem, other: WorkItem) -> bool:
    """Of two items of one destination. Of other kinds and lives, whichever came first goes first."""
    comparable = one.kind in REACHING and other.kind in REACHING and one.generation == other.generation
    return comparable and (one.through, one.attempt) > (other.through, other.attempt)


def without_superseded(held: Sequence[WaitingItem]) -> tuple[list[WaitingItem], list[WaitingItem]]:
    """Of items that can't be done yet, those to keep and those to let go: a reader waits for one of a destination."""
    best: dict[tuple[str, ItemKind], WaitingItem] = {}
    gone = []
    for each in held:
        kept = best.get((each.item.key, each.item.kind))
        if kept is not None and _rank(kept.item) >= _rank(each.item):
            gone.append(each)
            continue
        best[each.item.key, each.item.kind] = each
        if kept is not None:
            gone.append(kept)
    return list(best.values()), gone


def _rank(item: WorkItem) -> tuple[int, int, int]:
    return item.generation, item.through, item.attempt


def also_told(item: WorkItem, progress: Progress, other: WorkItem) -> Progress | None:
    """What the answer to ``item`` says to ``other``, which was here before the look began; None where it says nothing.

    Both are of one destination. What the cursor has passed is not asked here (``positions``).
    """
    if other.generation != item.generation:
        return None
    is_probe = item.kind is other.kind is ItemKind.PROBE
    is_behind = item.kind in REACHING and other.kind in REACHING and other.through <= item.through
    if not is_probe and not (is_behind and progress.outcome in CONCERNS_OTHERS):
        return None
    return progress.model_copy(update={"item": other.item, "kind": other.kind})
