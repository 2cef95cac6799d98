"""How wide a worker works, by clocks of our own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest

from services.applier.worker.adaptive_concurrency import CONTENT_S, AdaptiveConcurrency, unused_seconds
from shared.lake.connection.distance import Distance

FAR: Callable[[int], float] = lambda width: 2.0 * width  # noqa: E731 - what is finished a second
NEAR: Callable[[int], float] = lambda width: 60.0  # noqa: E731


class Way(Distance):
    """As long as a test says."""

    seconds = 0.0

    @property
    def round_trip_s(self) -> float:
        return self.seconds


class Watch:
    """Wall clock, a clock of what the machine's cores didn't use, one of our own CPU, and the way to the catalogs."""

    def __init__(self) -> None:
        self.wall = self.unused = self.used = 0.0
        self.way = Way()

    def passes(self, seconds: float, to_spare: float) -> None:
        self.wall += seconds
        self.unused += seconds * to_spare


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def width(watch: Watch) -> AdaptiveConcurrency:
    return AdaptiveConcurrency(2, 32, lambda: watch.wall, lambda: watch.unused, lambda: watch.used, watch.way)


def judged(
    width: AdaptiveConcurrency, watch: Watch, rate: Callable[[int], float], to_spare: float, *, times: int = 1
) -> list[int]:
    """The widths after each of so many seconds, in which ``rate`` of the width were finished, of 10 ms of CPU."""
    widths = []
    for _ in range(times):
        watch.passes(1.0, to_spare)
        finished = round(rate(width.now))
        watch.used += 0.01 * finished
        width.judge(finished, full=True)
        widths.append(width.now)
    return widths


def test_who_waits_for_far_catalogs_takes_on_more_and_more(width: AdaptiveConcurrency, watch: Watch) -> None:
    assert judged(width, watch, FAR, 0.9, times=5) == [4, 8, 16, 32, 32]


def test_on_a_machine_with_nothing_to_spare_nobody_goes_wide(width: AdaptiveConcurrency, watch: Watch) -> None:
    assert judged(width, watch, NEAR, 0.01, times=3) == [2, 2, 2]


def test_where_more_brings_nothing_it_is_tried_once_in_a_while_and_given_up(
    width: AdaptiveConcurrency, watch: Watch
) -> None:
    assert judged(width, watch, NEAR, 0.5, times=4) == [4, 2, 2, 2]
    watch.passes(CONTENT_S, 0.0)
    width.begin()
    assert judged(width, watch, NEAR, 0.5, times=3) == [4, 2, 2]


def test_it_ends_where_more_brings_no_more(width: AdaptiveConcurrency, watch: Watch) -> None:
    crowded: Callable[[int], float] = lambda width: min(2.0 * width, 18.0)  # noqa: E731
    assert judged(width, watch, crowded, 0.5, times=6) == [4, 8, 16, 8, 8, 8]


def test_with_little_to_spare_nothing_changes(width: AdaptiveConcurrency, watch: Watch) -> None:
    judged(width, watch, FAR, 0.9)
    assert judged(width, watch, FAR, 0.08, times=3) == [4, 4, 4]


def test_who_was_wide_and_finishes_as_much_with_less_goes_back(width: AdaptiveConcurrency, watch: Watch) -> None:
    judged(width, watch, FAR, 0.9, times=5)
    assert judged(width, watch, NEAR, 0.01, times=5) == [16, 8, 4, 2, 2]


def test_who_is_wide_and_finishes_less_with_less_stays_wide(width: AdaptiveConcurrency, watch: Watch) -> None:
    judged(width, watch, FAR, 0.9, times=5)
    assert judged(width, watch, FAR, 0.01, times=4) == [16, 32, 32, 32]


def test_a_moment_is_too_short_to_judge_by_but_moments_add_up(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.passes(0.125, 0.9)
    width.judge(5, full=True)
    assert width.now == 2
    watch.passes(0.125, 0.9)
    width.judge(5, full=True)
    assert width.now == 4


def test_nothing_is_judged_before_every_place_had_its_turn(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.passes(5.0, 0.9)
    width.judge(1, full=True)
    assert width.now == 2


def test_places_that_nobody_needs_say_nothing(width: AdaptiveConcurrency, watch: Watch) -> None:
    for _ in range(5):
        watch.passes(1.0, 0.9)
        width.judge(4, full=False)
    assert width.now == 2


def test_idleness_before_a_batch_says_nothing(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.passes(3600, 1.0)
    width.begin()
    assert judged(width, watch, NEAR, 0.01) == [2]


def test_what_a_batch_had_on_trial_at_its_end_is_not_judged_by_the_next(
    width: AdaptiveConcurrency, watch: Watch
) -> None:
    judged(width, watch, NEAR, 0.9)
    width.begin()
    assert judged(width, watch, FAR, 0.05, times=2) == [4, 4]
    judged(width, watch, NEAR, 0.01)
    assert width.now == 2
    width.begin()
    assert judged(width, watch, FAR, 0.05) == [4]


def test_a_batch_begins_as_wide_as_a_known_network_makes_it(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.used += 0.08
    width.judge(10, full=True)
    assert width.now == 2
    watch.way.seconds = 0.02
    width.begin()
    assert width.now == 12, "two that work for 8 ms, while others wait for 40 ms"


def test_the_network_shows_while_the_first_batch_goes_on(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.way.seconds = 0.02
    width.judge(1, full=False)
    assert width.now == 10, "of 10 ms each, as long as nothing is known of their CPU"


def test_few_applies_do_not_tell_what_one_costs(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.used, watch.way.seconds = 0.007, 0.02
    width.judge(7, full=True)
    assert width.now == 10
    watch.used += 0.001
    width.judge(1, full=True)
    assert width.now == 18, "of 5 ms each: what takes less was no apply"


def test_a_batch_begins_with_what_the_last_one_cost(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.way.seconds = 0.02
    for cpu, wide in ((0.001, 18), (0.02, 6), (0.01, 10)):
        width.begin()
        watch.used += 10 * cpu
        width.judge(10, full=False)
        width.begin()
        assert width.now == wide


def test_no_network_is_so_long_that_more_than_the_most_work(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.way.seconds = 1.0
    width.begin()
    assert width.now == 32


def test_more_than_a_known_network_needs_has_to_prove_itself(width: AdaptiveConcurrency, watch: Watch) -> None:
    judged(width, watch, FAR, 0.9, times=5)
    watch.way.seconds = 0.02
    assert judged(width, watch, NEAR, 0.1, times=4) == [16, 10, 10, 10]


def test_a_slow_store_behind_a_known_network_is_worth_more(width: AdaptiveConcurrency, watch: Watch) -> None:
    watch.way.seconds = 0.02
    width.begin()
    assert judged(width, watch, FAR, 0.5, times=3) == [20, 32, 32]


def test_what_is_known_of_the_network_ends_a_trial_with_the_batch(width: AdaptiveConcurrency, watch: Watch) -> None:
    """The next one would begin wider each time, with nothing proven."""
    watch.way.seconds = 0.02
    width.begin()
    assert judged(width, watch, FAR, 0.5) == [20]
    width.begin()
    assert width.now == 10
    assert judged(width, watch, FAR, 0.5, times=4) == [10, 10, 10, 10]
    watch.passes(CONTENT_S, 0.5)
    assert judged(width, watch, FAR, 0.5) == [20]


def test_most_is_never_less_than_least(watch: Watch) -> None:
    wide = AdaptiveConcurrency(4, 1, lambda: watch.wall, lambda: watch.unused)
    assert judged(wide, watch, FAR, 0.9, times=3) == [4, 4, 4]
    assert wide.most == 4


@pytest.mark.parametrize(("times", "unused"), [({"idle": 8.0, "iowait": 2.0}, 2.5), ({"idle": 8.0}, 2.0)])
def test_the_machine_tells_what_its_cores_did_not_use(
    monkeypatch: pytest.MonkeyPatch, times: dict[str, float], unused: float
) -> None:
    """Waiting for a disk uses no core, and only Linux counts it."""
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=100.0, **times))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    assert unused_seconds() == unused
