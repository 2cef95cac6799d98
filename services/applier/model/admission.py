"""Whether an item that arrived is done now, later, or not at all. Values in, values out."""

from __future__ import annotations

from enum import StrEnum

from shared.contracts.messages import DesiredState, Destination, ItemKind, WorkItem

KNOWN_WITHIN_S = 5.0
"""The two topics are not ordered among each other: an item may come before the destination that it speaks of."""


class Admission(StrEnum):
    RUN = "run"
    HOLD = "hold"
    """Its destination is not known yet, or not as it is by now; look again."""
    UNKNOWN = "unknown"
    """Its destination did not become known in time: answer that it failed, so that it is planned again."""
    FENCED = "fenced"
    """It belongs to an earlier life of its destination."""
    DROP = "drop"
    """Its destination is paused, stopped or removed: no service waits for an answer."""
    PASSED = "passed"
    """Its destination's cursor is known to be beyond it, or it was answered itself (``screen``)."""
    REFUSED = "refused"
    """It would drop data without control's word. That word begins another generation, so an item cannot have
    overtaken it."""


def admit(item: WorkItem, destination: Destination | None, waited_s: float) -> Admission:
    """What becomes of an item that was delivered. It spares work and guards nothing, so TLA: ``Take`` admits all."""
    if destination is None or destination.generation < item.generation:
        return Admission.HOLD if waited_s < KNOWN_WITHIN_S else Admission.UNKNOWN
    if destination.removed:
        return Admission.DROP
    if destination.generation > item.generation:
        return Admission.FENCED
    if item.kind is ItemKind.DROP and not destination.drop:
        return Admission.REFUSED
    if destination.state is DesiredState.RUNNING or (destination.drop and item.kind is ItemKind.DROP):
        return Admission.RUN
    return Admission.HOLD if waited_s < KNOWN_WITHIN_S else Admission.DROP
