"""Was an answer right? What an applier may say to an item, from the cursor that the destination had. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from shared.contracts.ranges import NOT_SEEDED
from tests.world.holdings import Holdings


@dataclass(frozen=True)
class Seen:
    """Where a destination's cursor is, as the last answer has shown; generation 0 is no cursor."""

    generation: int = 0
    position: int = NOT_SEEDED
    lost: bool = False
    """The position is one of a history of the source that is no more."""
    replaced: bool = False
    """The source is another lake since, whose table is another one wherever its head is."""


@dataclass(frozen=True)
class Circumstances:
    """What is known of the source when an item is answered.

    ``expired``: it no longer keeps the snapshot that the item reads from. ``must_refuse``, ``may_refuse``: it brings
    rows that can't be carried, or such rows that were there before. ``unplanned``: it was planned by a history of the
    source that is no more. ``behind``: an item of the same job ends beyond the source's head, ``ahead``: the cursor
    stands there. ``ended``: the source no longer keeps the snapshot where an advance ends. ``altered``: the owner of
    the table has altered it so that rows have lost values.
    """

    expired: bool = False
    must_refuse: bool = False
    may_refuse: bool = False
    unplanned: bool = False
    behind: bool = False
    ahead: bool = False
    ended: bool = False
    altered: bool = False


USUAL = Circumstances()

PARKS_FOR = frozenset({"source_moved", "source_recreated"})
"""Why a destination parks whose position is of a history that is no more."""


def allowed(seen: Seen, item: WorkItem, at: Circumstances = USUAL) -> frozenset[Outcome]:
    """What may come of ``item``."""
    may = _allowed(seen, item, at)
    if item.kind is ItemKind.ADVANCE and at.ended:
        return frozenset({Outcome.FAILED})  # the source is read before the destination is asked
    return may | {Outcome.FAILED} if at.behind and item.kind in READING else may


READING = (ItemKind.CHANGES, ItemKind.ADVANCE, ItemKind.SEED)


def _allowed(seen: Seen, item: WorkItem, at: Circumstances) -> frozenset[Outcome]:
    if item.kind is ItemKind.SEED:
        return _allowed_seed(seen, item, at)
    if item.kind is ItemKind.PROBE and not seen.generation:
        return frozenset({Outcome.ALREADY_APPLIED})
    if item.kind is ItemKind.CHANGES and at.expired:
        # The source is read before the destination is asked, so this comes first, whatever the cursor would say.
        return frozenset({Outcome.PARKED})
    if at.unplanned and item.kind in READING:
        return frozenset({Outcome.FAILED})
    if at.must_refuse:
        return frozenset({Outcome.PARKED})
    judged = _judge(seen, item)
    if seen.lost and judged is not Outcome.FENCED and item.kind is not ItemKind.UPKEEP:
        judged = Outcome.ALREADY_APPLIED if at.ahead and not seen.replaced else Outcome.PARKED
    is_refused = at.altered and judged is Outcome.APPLIED and item.kind in READING
    more = {Outcome.PARKED} if at.may_refuse or is_refused else set()
    if item.kind is ItemKind.CHANGES:
        # Nor is the destination asked where the range holds nothing of it.
        more.add(Outcome.EMPTY)
    return frozenset({judged} | more)


def _allowed_seed(seen: Seen, item: WorkItem, at: Circumstances) -> frozenset[Outcome]:
    if item.generation > seen.generation:
        # The reader plans a failed seed anew, at the oldest snapshot that there is then.
        found = Outcome.PARKED if at.must_refuse else Outcome.APPLIED
        return frozenset({Outcome.FAILED if at.expired else found})
    return frozenset({Outcome.ALREADY_APPLIED if item.generation == seen.generation else Outcome.FENCED})


def _judge(seen: Seen, item: WorkItem) -> Outcome:
    if not seen.generation:
        return Outcome.GAP
    if item.generation != seen.generation:
        return Outcome.FENCED
    if item.kind is ItemKind.PROBE or seen.position >= item.through:
        return Outcome.ALREADY_APPLIED
    return Outcome.APPLIED if seen.position == item.expected else Outcome.GAP


def complaints(
    seen: Seen, item: WorkItem, answer: Progress, holdings: Holdings, at: Circumstances = USUAL
) -> list[str]:
    """What is wrong with an answer; nothing if it is right."""
    if answer.error is not None and answer.error.type == "history_damaged" and item.kind is ItemKind.SEED:
        return []  # DuckLake shows that snapshot wrong (H13)
    may = allowed(seen, item, at)
    if answer.outcome not in may:
        said = answer.error.message if answer.error else ""
        return [f"{answer.outcome} where {' or '.join(sorted(may))} was due, {seen}: {said}"]
    if answer.outcome is Outcome.PARKED and (answer.error is None or answer.error.type not in _reasons(seen, at)):
        return [f"parked for {answer.error}, which is not the reason"]
    if answer.outcome is Outcome.APPLIED:
        return _applied(item, answer)
    if answer.outcome is Outcome.EMPTY:
        return _empty(item, answer, holdings)
    if answer.outcome not in (Outcome.PARKED, Outcome.FAILED) and answer.position != seen.position:
        return [f"{answer.outcome} tells position {answer.position}, but it is {seen.position}"]
    return []


def _reasons(seen: Seen, at: Circumstances) -> frozenset[str]:
    """The types of error for which a destination may be parked."""
    reasons = {
        "history_expired": at.expired,
        "value_not_carried": at.must_refuse or at.may_refuse,
        "table_mismatch": at.altered,
    }
    return frozenset(reason for reason, holds in reasons.items() if holds) | (PARKS_FOR if seen.lost else frozenset())


def _applied(item: WorkItem, answer: Progress) -> list[str]:
    wrong = []
    if answer.position != answer.through or answer.through is None or answer.through < item.through:
        wrong.append(f"applied up to {answer.through}, tells position {answer.position}")
    if item.pinned and item.kind is ItemKind.SEED and answer.through != item.through:
        wrong.append(f"a pinned item ended at {answer.through}")
    return wrong


def _empty(item: WorkItem, answer: Progress, holdings: Holdings) -> list[str]:
    if answer.through is None or answer.through < item.through:
        return [f"empty only up to {answer.through}"]
    missed = holdings.first_change(item.after, answer.through)
    return [] if missed is None else [f"empty up to {answer.through}, but snapshot {missed} changed something"]
