"""What answers add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.view.observed_state import KEPT, ObservedLife, after
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from tests.fast.control.examples import at, problem, progress


def told(*answers: Progress) -> ObservedLife:
    seen: ObservedLife | None = None
    for each in answers:
        seen = after(seen, each)
    assert seen is not None
    return seen


def test_an_answer_that_comes_late_does_not_take_a_position_back() -> None:
    assert told(progress(position=9), progress(position=5)).position == 9


@pytest.mark.parametrize(
    "look",
    [progress(Outcome.GAP, position=5), progress(Outcome.ALREADY_APPLIED, kind=ItemKind.PROBE, position=5)],
    ids=["gap", "probe"],
)
def test_a_look_at_the_cursor_itself_is_believed(look: Progress) -> None:
    """A destination that was restored from a backup is where its cursor says."""
    assert told(progress(position=9), look).position == 5


def test_a_failure_that_could_not_read_the_cursor_leaves_the_position_known() -> None:
    assert told(progress(position=9), progress(Outcome.FAILED, error=problem())).position == 9


def test_a_later_life_begins_anew() -> None:
    seen = told(progress(Outcome.PARKED, position=9, error=problem()), progress(generation=2, position=3))
    assert (seen.generation, seen.position, seen.error, seen.parked) == (2, 3, None, False)


def test_an_older_lifes_answer_is_ignored() -> None:
    assert told(progress(generation=2, position=3), progress(generation=1, position=9)).position == 3


def test_a_fenced_answer_says_nothing_about_our_own_life() -> None:
    assert after(None, progress(Outcome.FENCED, generation=9)) is None
    assert told(progress(position=3), progress(Outcome.FENCED, generation=9, position=5)).position == 3


def test_an_error_is_as_old_as_its_first_answer_in_a_row() -> None:
    failed = [progress(Outcome.FAILED, seconds=number, error=problem()) for number in (1, 2, 3)]
    assert told(*failed).since == at(1)
    assert told(*failed, progress(seconds=4), progress(Outcome.FAILED, seconds=5, error=problem())).since == at(5)
    assert told(*failed, progress(Outcome.FAILED, seconds=4, error=problem("storage_failed"))).since == at(4)


@pytest.mark.parametrize("happy", [Outcome.APPLIED, Outcome.ALREADY_APPLIED, Outcome.EMPTY, Outcome.GAP])
def test_a_happy_answer_ends_an_error(happy: Outcome) -> None:
    seen = told(progress(Outcome.PARKED, error=problem()), progress(happy))
    assert (seen.error, seen.since, seen.parked) == (None, None, False)


def test_only_an_apply_is_one() -> None:
    assert told(progress(seconds=1), progress(Outcome.EMPTY, seconds=2)).last_applied_at == at(1)


DIRECT = progress(position=5, commit=CommitPath.DIRECT)
BY_EXTENSION = progress(position=7, commit=CommitPath.EXTENSION, commit_reason="schema_change")


def who(*answers: Progress) -> tuple[CommitPath | None, str | None]:
    seen = told(*answers)
    return seen.commit, seen.commit_reason


def test_the_last_commit_tells_who_made_it_and_why() -> None:
    assert who(BY_EXTENSION) == ("extension", "schema_change")
    assert who(DIRECT, BY_EXTENSION) == ("extension", "schema_change")
    assert who(BY_EXTENSION, DIRECT.model_copy(update={"position": 9})) == ("direct", None)


@pytest.mark.parametrize(
    "later",
    [
        DIRECT,
        progress(Outcome.EMPTY, position=7, through=9),
        progress(Outcome.ALREADY_APPLIED, position=7),
        progress(Outcome.FAILED, error=problem()),
        progress(kind=ItemKind.UPKEEP, position=7),
    ],
    ids=["late", "empty", "again", "failed", "upkeep"],
)
def test_what_commits_no_change_after_it_says_nothing_of_who_made_the_last_one(later: Progress) -> None:
    assert who(BY_EXTENSION, later) == ("extension", "schema_change")


@pytest.mark.parametrize(
    "later",
    [
        progress(Outcome.ALREADY_APPLIED, position=9),
        progress(Outcome.GAP, position=5),
        progress(position=9),
        progress(generation=2, position=3),
    ],
    ids=["further", "restored", "older applier", "later life"],
)
def test_of_a_commit_that_was_not_heard_of_it_is_not_known_who_made_it(later: Progress) -> None:
    assert who(BY_EXTENSION, later) == (None, None)


def timed(position: int, **changes: Any) -> Progress:
    return progress(position=position, **changes).model_copy(
        update={"seconds": {"feed": 0.5, "apply": float(position)}}
    )


def test_the_durations_of_the_newest_applies_are_kept_once_each() -> None:
    seen = told(*(timed(position) for position in range(KEPT + 9)), timed(KEPT))
    assert (len(seen.took), seen.took[-1]) == (KEPT, (KEPT, KEPT + 0.5))
    assert len(dict(seen.took)) == KEPT


def test_what_moves_no_position_has_no_duration_and_a_later_life_none_of_the_one_before() -> None:
    upkeep = timed(3, kind=ItemKind.UPKEEP)
    assert told(timed(3), upkeep, timed(4, outcome=Outcome.ALREADY_APPLIED), progress(position=5)).took == ((3, 3.5),)
    assert told(timed(3), timed(9, generation=2)).took == ((9, 9.5),)


def test_an_empty_range_makes_it_exact_further_than_its_position() -> None:
    assert told(progress(position=3, through=3), progress(Outcome.EMPTY, position=3, through=8)).through == 8


ANSWERS = st.builds(
    progress,
    outcome=st.sampled_from([o for o in Outcome if o is not Outcome.GAP]),
    generation=st.integers(1, 3),
    position=st.none() | st.integers(-1, 9),
)


@given(st.lists(ANSWERS))
def test_within_a_life_the_position_only_grows(answers: list[Progress]) -> None:
    seen: ObservedLife | None = None
    for each in answers:
        before, seen = seen, after(seen, each)
        if before is not None and seen is not None and seen.generation == before.generation:
            assert before.position is None or (seen.position is not None and seen.position >= before.position)
