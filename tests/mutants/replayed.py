"""Mistakes in what an applier remembers of cursors, and in which items it lets go first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from services.applier import backlog, known_positions, lane, screening
from services.applier.known_positions import KnownPosition, KnownPositions
from services.applier.model.admission import Admission
from services.control.operations.replay_pacing import ReplayTurn
from shared.contracts.messages import Destination as Wanted
from shared.contracts.messages import ItemKind, Outcome, WorkItem
from tests.mutants.mistake import Mistake, put

REPLAYED = "tests/fast/applier/test_backlog.py"
POSITIONS = "tests/fast/applier/test_known_positions.py"


def _remember_across_lives() -> None:
    put(known_positions, "is_same_life", lambda *_: True)


def _passed(rule: Callable[[KnownPosition, WorkItem], bool]) -> Callable[[], None]:
    """``rule`` decides of changes whether the cursor has passed them."""

    def plant() -> None:
        right = known_positions.has_passed

        def has_passed(known: KnownPosition, item: WorkItem) -> bool:
            return rule(known, item) if item.kind is ItemKind.CHANGES else right(known, item)

        put(known_positions, "has_passed", has_passed)

    return plant


def _answer_probes() -> None:
    right = known_positions.has_passed

    def has_passed(known: KnownPosition, item: WorkItem) -> bool:
        return item.kind is ItemKind.PROBE or right(known, item)

    put(known_positions, "has_passed", has_passed)


def _nothing_is_outrun() -> None:
    put(KnownPositions, "is_outrun", lambda *_: False)


def _keep_the_highest() -> None:
    right = KnownPositions._raise_or_lower

    def _raise_or_lower(self: KnownPositions, item: WorkItem, wanted: Wanted, progress: Any, *more: Any) -> None:
        known = self._known.get(item.key)
        if known is None or progress.position >= known.position:
            right(self, item, wanted, progress, *more)

    put(KnownPositions, "_raise_or_lower", _raise_or_lower)


def _never_forget() -> None:
    put(KnownPositions, "forget", lambda *_: None)


def _believe_whoever_speaks_last() -> None:
    right = KnownPositions._raise_or_lower

    def _raise_or_lower(self: KnownPositions, item: WorkItem, wanted: Any, progress: Any, at: Any, _: int) -> None:
        right(self, item, wanted, progress, at, self._moment)

    put(KnownPositions, "_raise_or_lower", _raise_or_lower)


def _believe_what_nobody_looked_at() -> None:
    right = KnownPositions.note

    def note(self: KnownPositions, item: WorkItem, wanted: Wanted, progress: Any, at: Any, begun: int) -> None:
        empty = progress.outcome is Outcome.EMPTY
        said = {"outcome": Outcome.ALREADY_APPLIED, "position": progress.through}
        right(self, item, wanted, progress.model_copy(update=said) if empty else progress, at, begun)

    put(KnownPositions, "note", note)


def _silent_to_who_waits() -> None:
    right = screening.Screen.judge

    def judge(self: screening.Screen, item: WorkItem, waited_s: float) -> screening.ScreeningVerdict:
        found = right(self, item, waited_s)
        return replace(found, answer=None) if found.admission is Admission.PASSED else found

    put(screening.Screen, "judge", judge)


def _gaps_are_everybodys() -> None:
    put(backlog, "CONCERNS_OTHERS", backlog.CONCERNS_OTHERS | {Outcome.GAP})


def _first_come_first_served() -> None:
    put(backlog, "reaches_further", lambda *_: False)


def _stale_ones_in_between() -> None:
    put(lane.LaneThread, "_is_stale", lambda *_: False)


def _seeded_by_any_answer() -> None:
    right = known_positions.has_passed

    def has_passed(known: KnownPosition, item: WorkItem) -> bool:
        return item.kind is ItemKind.SEED or right(known, item)

    put(known_positions, "has_passed", has_passed)


def _anybodys_turn() -> None:
    put(ReplayTurn, "_is_anothers", lambda *_: False)


MISTAKES = (
    Mistake("remember-across-lives", "what was seen of one life holds for the next", _remember_across_lives,
            (REPLAYED, "-k", "one_life or operator_touches")),
    Mistake("fresh-is-repeated", "an item that begins at the cursor was passed",
            _passed(lambda known, item: known.position >= item.expected), (REPLAYED, "-k", "never_passes")),
    Mistake("passed-in-part", "an item that begins before the cursor was passed",
            _passed(lambda known, item: known.position > item.expected or known.position >= item.through),
            (REPLAYED, "-k", "reaches_beyond")),
    Mistake("nothing-is-passed", "old items are looked at, each of them", _passed(lambda *_: False),
            (REPLAYED, "-k", "thousands or backlog_of_old")),
    Mistake("remembered-probes", "a probe is answered from memory", _answer_probes, (REPLAYED, "-k", "probes_are")),
    Mistake("old-probes-are-fresh", "a probe is looked at, whatever its reader has asked for since", _nothing_is_outrun,
            (REPLAYED, "-k", "old_probe")),
    Mistake("remembered-highest", "a lower position is not believed", _keep_the_highest,
            (REPLAYED, "-k", "was_restored")),
    Mistake("remembered-for-ever", "positions of lost partitions stay known", _never_forget,
            (REPLAYED, "-k", "was_restored")),
    Mistake("last-word-counts", "a look counts by its end, not by its beginning", _believe_whoever_speaks_last,
            (POSITIONS, "-k", "earlier_look")),
    Mistake("empty-is-looked-at", "the end of an empty range is taken for the cursor", _believe_what_nobody_looked_at,
            (POSITIONS, "-k", "empty")),
    Mistake("silent-to-who-waits", "what the cursor has passed is not answered", _silent_to_who_waits,
            (REPLAYED, "-k", "backlog_of_old")),
    Mistake("gaps-for-all", "a gap is told to every item of the destination", _gaps_are_everybodys,
            (REPLAYED, "-k", "gap_is_told")),
    Mistake("first-come", "of a destination's items the first runs first", _first_come_first_served,
            (REPLAYED, "-k", "furthest")),
    Mistake("stale-in-between", "items that nobody would send now run among the others", _stale_ones_in_between,
            (REPLAYED, "-k", "after_all_others")),
    Mistake("any-answer-seeds", "a seed is done where any item of its life was", _seeded_by_any_answer,
            (REPLAYED, "-k", "options_nobody")),
    Mistake("anybodys-turn", "several send again at once", _anybodys_turn,
            ("tests/fast/control/operations/test_work_items.py", "-k", "nobody_else_does or turn_is_taken")),
)  # fmt: skip
