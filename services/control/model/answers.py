"""What an answer of an applier or of the reader asks of the registry. Values in, values out."""

from __future__ import annotations

from dataclasses import replace

from services.control.model.lifecycle import OnGap, Registered, Revision, adopt, remove, reseed
from shared.contracts.messages import ItemKind, Outcome, Problem, Progress
from shared.contracts.upkeep import UPKEEP_DAMAGED, Damage

RESEED_ON_GAP = frozenset({"history_expired", "source_recreated", "source_moved"})


def answer(held: Registered, progress: Progress, on_gap: OnGap, revision: Revision) -> Registered:
    """What an applier's or the reader's answer asks of the registry; ``held`` itself where that is nothing.

    Only an answer to the present generation can ask for a new one, so a message that comes twice asks once.
    TLA: ``Answer``.
    """
    if held.removed:
        return held
    if progress.outcome is Outcome.FENCED:
        return adopt(held, progress.generation, revision)
    if held.removing:
        return remove(held, revision) if _is_dropped(held, progress) else held
    if (told := _told_by(held, progress)) is not held:
        return told
    if progress.outcome is not Outcome.PARKED or progress.error is None or progress.generation != held.generation:
        return held
    if progress.error.type == UPKEEP_DAMAGED:
        return _harmed(held, progress, progress.error, revision)
    damaged = progress.error.type == "destination_damaged"
    gap = on_gap == "reseed" and progress.error.type in RESEED_ON_GAP
    return reseed(held, revision) if damaged or gap else held


def _harmed(held: Registered, progress: Progress, error: Problem, revision: Revision) -> Registered:
    """Never reseeded by itself: that would hide the fault, and upkeep would go on to the next lake. An answer that was
    heard before, as when a topic is read from its beginning, does not undo an operator's word."""
    at, known = progress.since or progress.at, held.declared.damage
    if known is not None and at <= known.at:
        return held
    return replace(held, declared=replace(held.declared, damage=Damage(at=at, problem=error)), revision=revision)


def _told_by(held: Registered, progress: Progress) -> Registered:
    """With what an answer of its present life says about its table; ``held`` itself where that is known."""
    declared = held.declared
    if progress.generation != held.generation:
        return held
    if progress.layout is not None and progress.layout != (declared.laid_out or declared.layout):
        laid_out = None if progress.layout == declared.layout else progress.layout
        declared = replace(declared, laid_out=laid_out)
    if progress.left is not None and progress.left != declared.left:
        declared = replace(declared, left=progress.left)
    return held if declared is held.declared else replace(held, declared=declared)


def _is_dropped(held: Registered, progress: Progress) -> bool:
    dropped = progress.kind is ItemKind.DROP and progress.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    return dropped and progress.generation == held.generation
