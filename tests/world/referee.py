"""Was an answer right? What an applier may say to an item, from the cursor that the destination had. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from shared.messages import ItemKind, Outcome, Progress, WorkItem
from shared.ranges import NOT_SEEDED
from tests.world.holdings import Holdings


@dataclass(frozen=True)
class Seen:
    """Where a destination's cursor is, as the last answer has shown; generation 0 is no cursor."""

    generation: int = 0
    position: int = NOT_SEEDED


def allowed(seen: Seen, item: WorkItem, *, expired: bool, broken: bool = False) -> frozenset[Outcome]:
    """What may come of ``item``. ``expired`` says that the source no longer keeps the snapshot that it reads from,
    ``broken`` that its range replaces a column by another one of its name."""
    if item.kind is ItemKind.SEED:
        return _allowed_seed(seen, item, expired=expired)
    if item.kind is ItemKind.PROBE and not seen.generation:
        return frozenset({Outcome.ALREADY_APPLIED})
    if (item.kind is ItemKind.CHANGES and expired) or broken:
        # The source is read before the destination is asked, so this comes first, whatever the cursor would say.
        return frozenset({Outcome.PARKED})
    judged = _judge(seen, item)
    if item.kind is ItemKind.CHANGES:
        # Nor is the destination asked where the range holds nothing of it.
        return frozenset({judged, Outcome.EMPTY})
    return frozenset({judged})


def _allowed_seed(seen: Seen, item: WorkItem, *, expired: bool) -> frozenset[Outcome]:
    if item.generation > seen.generation:
        # The reader plans a failed seed anew, at the oldest snapshot that there is then.
        return frozenset({Outcome.FAILED if expired else Outcome.APPLIED})
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
    seen: Seen, item: WorkItem, answer: Progress, holdings: Holdings, *, expired: bool, broken: bool = False
) -> list[str]:
    """What is wrong with an answer; nothing if it is right."""
    if answer.error is not None and answer.error.type == "history_damaged" and item.kind is ItemKind.SEED:
        return []  # DuckLake shows that snapshot wrong (H13)
    may = allowed(seen, item, expired=expired, broken=broken)
    if answer.outcome not in may:
        said = answer.error.message if answer.error else ""
        return [f"{answer.outcome} where {' or '.join(sorted(may))} was due, {seen}: {said}"]
    if answer.outcome is Outcome.APPLIED:
        return _applied(item, answer)
    if answer.outcome is Outcome.EMPTY:
        return _empty(item, answer, holdings)
    if answer.outcome not in (Outcome.PARKED, Outcome.FAILED) and answer.position != seen.position:
        return [f"{answer.outcome} tells position {answer.position}, but it is {seen.position}"]
    return []


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
