from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.reader.planner.change_index import MOST_COUNTS, MOST_STEPS, Ahead, ChangeIndex
from services.reader.planner.counted_changes import CountedStep
from shared.contracts.ranges import Range
from tests.fast.reader.simulation import step


def ledger(*steps: CountedStep, segment_rows: int = 10) -> ChangeIndex:
    made = ChangeIndex(steps[0].range.after, segment_rows)
    for each in steps:
        made.extend(each)
    return made


def test_a_destination_moves_on_for_free_until_a_step_touches_it() -> None:
    made = ledger(step(5, 7, {"b": 1}), step(7, 8), step(8, 10, {"a": 2}))
    assert made.settle(5, "a") == (8, step(8, 10, {"a": 2}))
    assert made.settle(5, "b")[0] == 5
    assert made.settle(5, "c") == (10, None)


def test_a_step_around_the_position_counts_whole() -> None:
    made = ledger(step(5, 9, {"a": 2}))
    assert made.settle(7, "a") == (7, step(5, 9, {"a": 2}))
    assert made.ahead(7, "a") == Ahead(7, 9, 2, pinned=False)


def test_a_destination_beyond_the_line_is_where_it_is() -> None:
    made = ledger(step(5, 9, {"a": 2}))
    assert made.settle(12, "a") == (12, None)
    assert made.ahead(12, "a") is None


def test_below_the_floor_nothing_is_known() -> None:
    made = ledger(step(5, 9, {"a": 2}))
    assert made.settle(4, "a") == (4, None)
    assert made.ahead(4, "a") is None


def test_an_unpinned_piece_of_work_reaches_to_the_line_and_counts_its_own_rows() -> None:
    made = ledger(step(5, 6), step(6, 7, {"a": 1, "b": 50}), step(7, 8, {"b": 1}), step(8, 9, {"a": 4}))
    assert made.ahead(5, "a") == Ahead(6, 9, 5, pinned=False)


def test_pinned_steps_go_together_as_long_as_all_their_rows_fit_a_segment() -> None:
    made = ledger(
        step(0, 1, {"a": 2, "b": 3}, pinned=True),
        step(1, 2, {"b": 4}, pinned=True),
        step(2, 3, {"a": 9}, pinned=True),
    )
    assert made.ahead(0, "a") == Ahead(0, 2, 2, pinned=True)
    assert made.ahead(0, "b") == Ahead(0, 2, 7, pinned=True)
    assert made.ahead(2, "a") == Ahead(2, 3, 9, pinned=True)


def test_a_pinned_step_larger_than_a_segment_goes_alone() -> None:
    made = ledger(step(0, 1, {"a": 99}, pinned=True), step(1, 2, {"a": 1}, pinned=True))
    assert made.ahead(0, "a") == Ahead(0, 1, 99, pinned=True)


def test_a_pinned_run_ends_where_steps_are_no_longer_pinned() -> None:
    made = ledger(step(0, 1, {"a": 1}, pinned=True), step(1, 2, {"a": 1}))
    assert made.ahead(0, "a") == Ahead(0, 1, 1, pinned=True)
    assert made.ahead(1, "a") == Ahead(1, 2, 1, pinned=False)


def test_steps_under_the_floor_serve_those_who_stand_there() -> None:
    made = ledger(step(5, 9, {"a": 1}))
    made.extend_down(step(2, 5, {"b": 1}))
    assert made.floor == 2
    assert made.settle(2, "a")[0] == 5
    assert made.settle(3, "b")[0] == 3


def test_trimming_keeps_what_somebody_still_needs() -> None:
    made = ledger(step(1, 3, {"a": 1}), step(3, 5, {"a": 1}), step(5, 7, {"a": 1}))
    made.trim(4)
    assert (made.floor, made.line, len(made)) == (3, 7, 2)
    assert made.settle(4, "a")[0] == 4
    made.trim(7)
    assert (made.floor, made.line, len(made)) == (7, 7, 0)
    made.trim(100)
    assert made.floor == 7


def test_steps_that_leave_a_hole_are_refused() -> None:
    made = ledger(step(5, 9))
    with pytest.raises(ValueError, match="does not begin at the line 9"):
        made.extend(step(10, 11))
    with pytest.raises(ValueError, match="does not end at the floor 5"):
        made.extend_down(step(2, 4))


@pytest.mark.parametrize("pinned", [False, True])
def test_a_destination_that_lags_for_days_costs_no_memory_for_days(pinned: bool) -> None:
    made = ChangeIndex(0, segment_rows=10_000)
    for number in range(20 * MOST_STEPS):
        made.extend(step(number, number + 1, {"a": 1} if number % 3 == 0 else {}, pinned=pinned))
    assert len(made) <= MOST_STEPS
    assert made.settle(0, "a")[0] == 0
    assert made.settle(0, "b") == (20 * MOST_STEPS, None)
    if not pinned:
        assert made.ahead(0, "a") == Ahead(0, 20 * MOST_STEPS, 20 * MOST_STEPS // 3 + 1, pinned=False)


def test_pinned_steps_are_never_merged_beyond_a_segment() -> None:
    made = ChangeIndex(0, segment_rows=10)
    for number in range(2 * MOST_STEPS):
        made.extend(step(number, number + 1, {"a": 6}, pinned=True))
    assert len(made) == 2 * MOST_STEPS
    assert made.ahead(0, "a") == Ahead(0, 1, 6, pinned=True)


VALUES = "abcd"
HISTORY = st.binary(min_size=61, max_size=61).map(
    lambda drawn: [{v: 1 + bits // 64 for n, v in enumerate(VALUES) if bits >> n & 1} for bits in drawn]
)
"""Of each snapshot the rows by value."""
DEEDS = st.lists(
    st.one_of(
        st.just(("extend", None)),
        st.just(("extend", None)),
        st.just(("extend_down", None)),
        st.tuples(st.just("trim"), st.integers(0, 60)),
        st.tuples(st.just("thin"), st.dictionaries(st.sampled_from(VALUES), st.integers(-1, 60))),
        st.just(("forget", None)),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(HISTORY, DEEDS)
def test_a_thinned_ledger_claims_what_is_true_and_nothing_of_what_it_forgot(
    history: list[dict[str, int]], deeds: list[tuple[str, Any]]
) -> None:
    """``history`` has the rows of each snapshot; a range that is counted again shows the same.

    What holds after every deed is asked at the end alone: each beginning of a list of deeds is one, too.
    """
    made = ChangeIndex(20, segment_rows=10)
    for deed, argument in deeds:
        if deed == "extend" and made.line < len(history) - 1:
            made.extend(step(made.line, made.line + 1, history[made.line + 1]))
        elif deed == "extend_down" and made.floor > 0:
            made.extend_down(step(made.floor - 1, made.floor, history[made.floor]))
        elif deed == "trim":
            made.trim(argument)
        elif deed == "thin":
            made.thin(argument)
        elif deed == "forget":
            made.forget()
    assert made.counts == sum(len(each.rows) for each in made._steps)
    for value in VALUES:
        for exact in range(made.floor, made.line + 1):
            first = next((n for n in range(exact + 1, made.line + 1) if value in history[n]), None)
            true = made.line if first is None else first - 1
            known = made.knows(exact, value)
            assert made.settle(exact, value)[0] == (true if known else exact)
            assert (made.ahead(exact, value) is not None) == (known and first is not None)


def test_who_lags_is_known_through_any_number_of_thinnings_and_who_comes_back_is_not() -> None:
    made = ChangeIndex(0, segment_rows=10)
    for number in range(6):
        made.extend(step(number, number + 1, {"away": 1, "well": 1}))
        made.thin({"away": 0})
    assert made.ahead(0, "away") == Ahead(0, 6, 6, pinned=False)
    assert made.counts == 6
    assert made.knows(6, "well")
    assert not made.knows(3, "well")
    made.forget()
    assert (made.floor, made.line) == (6, 6)
    assert made.knows(3, "well")  # it is under the floor now, and counted there


def test_of_values_that_were_not_counted_nothing_is_claimed() -> None:
    made = ChangeIndex(0, segment_rows=10)
    made.extend(step(0, 1, {"there": 1, "comes later": 1}))
    made.extend(step(1, 2, {"there": 1}))
    made.keep_known(["there"])
    made.extend(step(2, 3, {"there": 1, "comes later": 1}))
    assert [made.knows(exact, "there") for exact in (0, 1, 2)] == [True, True, True]
    assert [made.knows(exact, "comes later") for exact in (0, 1, 2)] == [False, False, True]


def test_one_destination_away_costs_the_counts_of_one_destination() -> None:
    """Ten thousand values in every step, for a day of steps."""
    made, most = ChangeIndex(0, segment_rows=500_000), 0
    rows = {f"tenant {number}": 1 for number in range(1_000)}
    for number in range(5 * MOST_STEPS):
        made.extend(step(number, number + 1, rows))
        if made.is_heavy:
            made.thin({"tenant 7": 0})
        most = max(most, made.counts)
    assert most <= MOST_COUNTS + len(rows)
    assert made.ahead(0, "tenant 7") == Ahead(0, 5 * MOST_STEPS, 5 * MOST_STEPS, pinned=False)


@pytest.mark.slow
def test_where_many_lag_for_long_steps_are_merged_until_they_are_few() -> None:
    made, rows = ChangeIndex(0, segment_rows=500_000), {f"tenant {number}": 1 for number in range(20_000)}
    for number in range(50):
        made.extend(step(number, number + 1, rows))
        if made.is_heavy:
            made.thin(dict.fromkeys(rows, 0))
        assert made.counts <= 2 * MOST_COUNTS + len(rows)
    assert made.settle(0, "tenant 0")[0] == 0


def test_steps_that_may_be_of_any_value_touch_all_of_them_also_once_they_are_merged_or_thinned() -> None:
    """Of a topic that is routed, also for a destination that was announced after they were counted."""
    made = ledger(
        *(CountedStep(Range(end - 1, end), {}, 1, pinned=True, of_any=1) for end in range(1, MOST_STEPS + 20))
    )
    assert len(made) <= MOST_STEPS
    for exact in (0, 3, 300):
        assert made.settle(exact, "unknown yet")[0] == exact
    made.thin({"a": 3})
    ahead = made.ahead(300, "a")
    assert ahead is not None
    assert (ahead.after, ahead.rows) == (300, 10)
    assert made.ahead(made.line, "a") is None
