from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.reader.planner.counted_changes import merged, segments
from shared.contracts.ranges import Range
from tests.fast.reader.simulation import step

histories = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=30).map(
    lambda gaps: [(sum(gap for gap, _ in gaps[: i + 1]), rows) for i, (_, rows) in enumerate(gaps)]
)


@given(histories, st.integers(1, 30))
def test_segments_cover_a_range_without_hole_or_overlap(history: list[tuple[int, int]], limit: int) -> None:
    whole = Range(0, (history[-1][0] if history else 0) + 3)
    cuts = segments(history, whole, limit)
    assert cuts[0].after == 0
    assert cuts[-1].through == whole.through
    assert all(older.through == newer.after for older, newer in pairwise(cuts))
    assert not any(cut.is_empty for cut in cuts)


@given(histories, st.integers(1, 30))
def test_a_segment_exceeds_the_limit_only_where_one_snapshot_does(history: list[tuple[int, int]], limit: int) -> None:
    for cut in segments(history, Range(0, 200), limit):
        rows = [rows for snapshot, rows in history if cut.after < snapshot <= cut.through and rows]
        assert sum(rows) <= limit or len(rows) == 1


@given(histories)
def test_a_range_that_fits_is_one_segment(history: list[tuple[int, int]]) -> None:
    assert segments(history, Range(0, 200), 10_000) == [Range(0, 200)]


def test_segments_end_right_before_the_snapshot_that_would_not_fit() -> None:
    history = [(3, 6), (5, 4), (8, 1), (9, 20), (12, 2)]
    assert segments(history, Range(2, 14), 10) == [Range(2, 7), Range(7, 8), Range(8, 11), Range(11, 14)]


def test_merging_two_steps_adds_their_rows_and_keeps_the_older_touch() -> None:
    older, newer = step(3, 5, {"a": 1, "b": 2}), step(5, 9, {"b": 3})
    both = merged(older, newer)
    assert both.range == Range(3, 9)
    assert both.rows == {"a": 1, "b": 5}
    assert both.total == 6
    assert both.oldest_touch == older.oldest_touch
    assert merged(step(1, 3), older).oldest_touch == older.oldest_touch
