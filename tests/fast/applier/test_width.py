"""How wide a worker works, by clocks of our own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.applier.width import CONTENT_S, Width

FAR: Callable[[int], float] = lambda width: 2.0 * width  # noqa: E731 - what is finished a second
BUSY: Callable[[int], float] = lambda width: 60.0  # noqa: E731


class Watch:
    """Wall clock and CPU clock of a process that uses ``share`` of a core."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def passes(self, seconds: float, share: float) -> None:
        self.wall += seconds
        self.cpu += seconds * share


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def width(watch: Watch) -> Width:
    return Width(2, 32, lambda: watch.wall, lambda: watch.cpu)


def judged(width: Width, watch: Watch, rate: Callable[[int], float], share: float, *, times: int = 1) -> list[int]:
    """The widths after each of so many seconds, in which ``rate`` of the width were finished."""
    widths = []
    for _ in range(times):
        watch.passes(1.0, share)
        width.judge(round(rate(width.now)), full=True)
        widths.append(width.now)
    return widths


def test_who_waits_for_far_catalogs_takes_on_more_and_more(width: Width, watch: Watch) -> None:
    assert judged(width, watch, FAR, 0.05, times=5) == [4, 8, 16, 32, 32]


def test_who_is_busy_stays_as_it_is(width: Width, watch: Watch) -> None:
    assert judged(width, watch, BUSY, 0.95, times=3) == [2, 2, 2]


def test_where_others_keep_the_machine_busy_more_is_tried_once_in_a_while_and_given_up(
    width: Width, watch: Watch
) -> None:
    assert judged(width, watch, BUSY, 0.3, times=4) == [4, 2, 2, 2]
    watch.passes(CONTENT_S, 0.0)
    width.begin()
    assert judged(width, watch, BUSY, 0.3, times=3) == [4, 2, 2]


def test_it_ends_where_more_brings_no_more(width: Width, watch: Watch) -> None:
    crowded: Callable[[int], float] = lambda width: min(2.0 * width, 18.0)  # noqa: E731
    assert judged(width, watch, crowded, 0.1, times=6) == [4, 8, 16, 8, 8, 8]


def test_between_waiting_and_being_busy_nothing_changes(width: Width, watch: Watch) -> None:
    judged(width, watch, FAR, 0.05)
    assert judged(width, watch, FAR, 0.65, times=3) == [4, 4, 4]


def test_who_was_wide_and_is_busy_now_goes_back(width: Width, watch: Watch) -> None:
    judged(width, watch, FAR, 0.05, times=5)
    assert judged(width, watch, BUSY, 1.2, times=5) == [16, 8, 4, 2, 2]


def test_a_moment_is_too_short_to_judge_by_but_moments_add_up(width: Width, watch: Watch) -> None:
    watch.passes(0.125, 0.0)
    width.judge(5, full=True)
    assert width.now == 2
    watch.passes(0.125, 0.0)
    width.judge(5, full=True)
    assert width.now == 4


def test_nothing_is_judged_before_every_place_had_its_turn(width: Width, watch: Watch) -> None:
    watch.passes(5.0, 0.0)
    width.judge(1, full=True)
    assert width.now == 2


def test_places_that_nobody_needs_say_nothing(width: Width, watch: Watch) -> None:
    for _ in range(5):
        watch.passes(1.0, 0.0)
        width.judge(4, full=False)
    assert width.now == 2


def test_idleness_before_a_batch_says_nothing(width: Width, watch: Watch) -> None:
    watch.passes(3600, 0.0)
    width.begin()
    assert judged(width, watch, BUSY, 0.9) == [2]


def test_most_is_never_less_than_least(watch: Watch) -> None:
    wide = Width(4, 1, lambda: watch.wall, lambda: watch.cpu)
    assert judged(wide, watch, FAR, 0.0, times=3) == [4, 4, 4]
    assert wide.most == 4
