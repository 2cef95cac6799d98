"""Answers that need no Spark job."""

from __future__ import annotations

from shared.contracts.errors import Action, DestinationError, ViaduckError
from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from shared.contracts.positions import UNSPELLED, SpelledPosition

REACHING = (ItemKind.CHANGES, ItemKind.ADVANCE)
"""Kinds of items that are done once a destination's position has come to their end."""


def answer(item: WorkItem, outcome: Outcome, applier: str) -> Progress:
    """A progress record for ``item`` with nothing but its outcome."""
    return Progress(
        pipeline=item.pipeline,
        destination=item.destination,
        item=item.item,
        kind=item.kind,
        outcome=outcome,
        generation=item.generation,
        applier=applier,
    )


def answer_again(progress: Progress, item: WorkItem) -> Progress | None:
    """What became of an item, told to who asked for the same with ``item``, as its cursor would (``decide``).

    None where that leaves open what is to become of ``item``, which may reach further. TLA: ``DecideAnew``.
    """
    told = progress.model_copy(update={"item": item.item})
    match progress.outcome:
        case Outcome.EMPTY:
            return told if _has_read(progress, item) else None
        case Outcome.APPLIED | Outcome.ALREADY_APPLIED:
            is_there = item.kind not in REACHING or progress.reached.covers(item.end)
            kept = progress.model_dump(include={"generation", "position", "position_at", "rows_applied"})
            outcome = Outcome.ALREADY_APPLIED if is_there else Outcome.GAP
            return answer(item, outcome, progress.applier).model_copy(update=kept)
        case _:
            return told


def failed(item: WorkItem, error: ViaduckError, applier: str) -> Progress:
    """The answer for an error: ``parked`` where only an operator can help, else ``failed``."""
    outcome = Outcome.PARKED if error.action is Action.PARK else Outcome.FAILED
    return answer(item, outcome, applier).model_copy(update={"error": error.problem()})


def unknown(item: WorkItem, applier: str) -> Progress:
    error = DestinationError(
        "destination_unknown",
        f"generation {item.generation} of {item.key} is not on the destinations topic",
        "control publishes it again; check that control is running",
    )
    return failed(item, error, applier)


def _has_read(progress: Progress, item: WorkItem) -> bool:
    """Whether what was found empty reaches the item's end; by the vectors, where the source spells positions."""
    if progress.through is None:
        return False
    if item.through_at is None:
        return progress.through >= item.through
    return SpelledPosition(progress.through, progress.through_at or UNSPELLED).covers(item.end)
