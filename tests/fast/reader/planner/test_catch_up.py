from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.reader.planner.catch_up import MOST_BOUNDARIES, CatchUp, spread
from shared.contracts.ranges import Range


def counted(positions: list[int], floor: int) -> list[Range]:
    """All ranges that are counted until nobody stands below the floor."""
    catch_up, ranges = CatchUp(), []
    while (wanted := catch_up.next(positions, floor)) is not None:
        ranges.append(wanted)
        floor = wanted.after
    return ranges


@given(st.lists(st.integers(0, 999), max_size=60))
def test_everybody_is_served_by_at_most_eight_ranges_without_a_hole(positions: list[int]) -> None:
    ranges = counted(positions, 1000)
    assert len(ranges) <= MOST_BOUNDARIES
    assert [each.after for each in ranges][:-1] == [each.through for each in ranges][1:]
    if positions:
        assert ranges[0].through == 1000
        assert ranges[-1].after == min(positions)


def test_nobody_below_the_floor_means_nothing_to_count() -> None:
    assert CatchUp().next([7, 8], 7) is None


def test_a_boundary_that_is_gone_is_not_asked_for_again() -> None:
    catch_up = CatchUp()
    assert catch_up.next([3, 5], 9) == Range(5, 9)
    catch_up.drop(5)
    assert catch_up.next([3], 9) == Range(3, 9)


def test_a_spread_keeps_the_lowest() -> None:
    assert spread([1, 2, 3], 8) == [1, 2, 3]
    assert spread(list(range(100)), 4) == [0, 25, 50, 75]
