"""How wide a worker works, by clocks of our own."""

from __future__ import annotations

import itertools

import pytest

from services.applier.width import Width


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


def judged(width: Width, watch: Watch, share: float, *, times: int = 1, seconds: float = 0.3, full: bool = True) -> int:
    for _ in range(times):
        watch.passes(seconds, share)
        width.judge(full=full)
    return width.now


def test_who_waits_for_far_catalogs_takes_on_more_and_more(width: Width, watch: Watch) -> None:
    assert [judged(width, watch, 0.05) for _ in range(5)] == [4, 8, 16, 32, 32]


def test_who_is_busy_stays_as_it_is(width: Width, watch: Watch) -> None:
    assert judged(width, watch, 0.95, times=10) == 2


def test_between_waiting_and_being_busy_nothing_changes(width: Width, watch: Watch) -> None:
    judged(width, watch, 0.05)
    assert judged(width, watch, 0.65, times=10) == 4


def test_who_was_wide_and_is_busy_now_goes_back(width: Width, watch: Watch) -> None:
    judged(width, watch, 0.05, times=4)
    assert [judged(width, watch, 1.2) for _ in range(5)] == [16, 8, 4, 2, 2]


def test_a_moment_is_too_short_to_judge_by_but_moments_add_up(width: Width, watch: Watch) -> None:
    assert judged(width, watch, 0.0, seconds=0.125) == 2
    assert judged(width, watch, 0.0, seconds=0.125) == 4


def test_places_that_nobody_needs_say_nothing(width: Width, watch: Watch) -> None:
    assert judged(width, watch, 0.0, times=5, full=False) == 2


def test_idleness_before_a_batch_says_nothing(width: Width, watch: Watch) -> None:
    watch.passes(3600, 0.0)
    width.begin()
    assert judged(width, watch, 0.9) == 2


def test_most_is_never_less_than_least() -> None:
    wall = itertools.count().__next__
    wide = Width(4, 1, lambda: float(wall()), lambda: 0.0)
    for _ in range(5):
        wide.judge(full=True)
    assert wide.now == wide.most == 4
