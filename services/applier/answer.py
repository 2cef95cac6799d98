"""Answers that need no Spark job."""

from __future__ import annotations

from shared.errors import Action, DestinationError, ViaduckError
from shared.messages import Outcome, Progress, WorkItem


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


def answer_again(progress: Progress, item: WorkItem) -> Progress:
    """What became of an item, told to who asked for the same with ``item``: done is done already, and counts once."""
    if progress.outcome is not Outcome.APPLIED:
        return progress.model_copy(update={"item": item.item})
    told = answer(item, Outcome.ALREADY_APPLIED, progress.applier)
    kept = ("generation", "position", "rows_applied")
    return told.model_copy(update={name: getattr(progress, name) for name in kept})


def failed(item: WorkItem, error: ViaduckError, applier: str) -> Progress:
    """The answer for an error: ``parked`` where only an operator can help, else ``failed``."""
    outcome = Outcome.PARKED if error.action is Action.PARK else Outcome.FAILED
    return answer(item, outcome, applier).model_copy(update={"error": error.problem()})


def unknown(item: WorkItem, applier: str) -> Progress:
    error = DestinationError(
        "destination_unknown",
        f"generation {item.generation} of {item.key} is not on the destinations topic",
        "control publishes it again by itself; is control running?",
    )
    return failed(item, error, applier)
