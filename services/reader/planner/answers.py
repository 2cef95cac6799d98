"""What an answer from an applier changes about a destination."""

from __future__ import annotations

from enum import StrEnum

from services.reader.planner.compaction import Wear, worn
from services.reader.planner.destination_state import DestinationState, ItemInFlight
from shared.contracts.messages import ItemKind, Outcome, Problem, Progress
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.upkeep import UPKEEP_DAMAGED


class Next(StrEnum):
    """What follows for the destination."""

    GO_ON = "go_on"
    BACK_OFF = "back_off"
    PARK = "park"


UNEXPLAINED = Problem(
    type="internal",
    message="the applier parked this destination without a reason",
    hint="see the applier's log, then resume",
    retryable=False,
)


def accept(tracked: DestinationState, asked: ItemInFlight, progress: Progress, now_s: float) -> Next:
    """Take over the answer to the item that was in flight. TLA: ``Accept``, ``Learns``."""
    if tracked.spec.drop and asked.kind is not ItemKind.DROP:
        return Next.GO_ON
    match progress.outcome:
        case Outcome.APPLIED | Outcome.ALREADY_APPLIED if asked.kind is ItemKind.DROP:
            tracked.dropped = True
            return Next.GO_ON
        case Outcome.APPLIED | Outcome.ALREADY_APPLIED:
            tracked.wear = _wear(tracked, asked, progress)
            return _at(tracked, progress, now_s)
        case Outcome.EMPTY:
            tracked.found_none(asked.through if progress.through is None else progress.through, progress.through_at)
            return Next.GO_ON
        case Outcome.GAP:
            return _gap(tracked, asked, progress, now_s)
        case Outcome.FENCED:
            return _fenced(tracked, progress, now_s)
        case Outcome.PARKED if now_s < tracked.settles_s:
            return Next.BACK_OFF
        case Outcome.PARKED:
            tracked.parked, tracked.told_at = progress.error or UNEXPLAINED, progress.at
            return Next.PARK
        case Outcome.FAILED:
            tracked.trouble, tracked.told_at = progress.error, progress.at
            return Next.BACK_OFF


def overhear(tracked: DestinationState, progress: Progress, now_s: float) -> bool:
    """Take over what an answer to another item, doubled, late or of another reader, still tells: a higher position.

    Whether it told anything. TLA: ``Accept``, ``Learns``.
    """
    is_parked = tracked.parked is not None and tracked.told_at is None
    is_ours = is_parked and progress.outcome is Outcome.PARKED and tracked.parked == progress.error
    if is_ours:
        tracked.told_at = progress.since or progress.at  # our own word: we have no clock of our own
    if progress.generation != tracked.spec.generation:
        return is_ours
    if _tells_of_harm(tracked, progress):
        tracked.parked, tracked.told_at = progress.error, progress.at
        return True
    if progress.position is None:
        return is_ours
    return tracked.grow(progress.position, now_s, progress.position_at) or is_ours


def _tells_of_harm(tracked: DestinationState, progress: Progress) -> bool:
    """Whether an upkeep, which control may have ordered, has damaged it. Control pauses it then, but may be away: until
    then it must not look as if all were well."""
    known = tracked.spec.damage
    is_harm = (
        progress.outcome is Outcome.PARKED and progress.error is not None and progress.error.type == UPKEEP_DAMAGED
    )
    is_news = known is None or (progress.since or progress.at) > known.at
    return is_harm and is_news and tracked.is_running


def _wear(tracked: DestinationState, asked: ItemInFlight, progress: Progress) -> Wear:
    is_change = asked.kind is ItemKind.CHANGES
    return worn(tracked.wear, progress.wear, progress.commit_reason) if is_change else tracked.wear


def _at(tracked: DestinationState, progress: Progress, now_s: float) -> Next:
    if progress.position is None:
        return Next.BACK_OFF
    exact, exact_at = tracked.exact, tracked.exact_at
    tracked.learn(progress.position, now_s, progress.rows_applied, progress.position_at)
    if progress.kind is not ItemKind.PROBE and progress.position != NOT_SEEDED:
        tracked.stay_exact(exact, exact_at)
    return Next.GO_ON


def _gap(tracked: DestinationState, asked: ItemInFlight, progress: Progress, now_s: float) -> Next:
    """The cursor is not at the expected position: plan from its own. If it is, the answer makes no sense: wait."""
    if progress.position is None:
        tracked.position = None
        return Next.BACK_OFF
    tracked.learn(progress.position, now_s, position_at=progress.position_at)
    return Next.BACK_OFF if progress.reached == asked.begin else Next.GO_ON


def _fenced(tracked: DestinationState, progress: Progress, now_s: float) -> Next:
    """A cursor of an older life is to be replaced by a seed; one of a later life means that control will tell us."""
    if progress.generation < tracked.spec.generation:
        tracked.learn(NOT_SEEDED, now_s)
        return Next.GO_ON
    tracked.position = None
    return Next.BACK_OFF
