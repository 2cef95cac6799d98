from __future__ import annotations

import pytest

from services.reader.planner.timers import SPARE, Timers
from shared.runtime.backoff import LONGEST_S, delay_s


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (8, 128), (9, 256), (10, 300), (9_999, 300)])
def test_the_pause_doubles_from_one_second_to_five_minutes(failures: int, seconds: float) -> None:
    assert delay_s(failures, 0.0) == seconds


def test_jitter_adds_up_to_a_quarter() -> None:
    assert delay_s(1, 0.5) == 1.125
    assert delay_s(99, 0.999) < LONGEST_S * 1.25


def test_timers_give_each_due_name_once() -> None:
    timers = Timers()
    timers.at(5.0, "a")
    timers.at(3.0, "b")
    timers.at(4.0, "b")
    assert timers.next_due_s() == 3.0
    assert timers.pop_due(2.9) == set()
    assert timers.pop_due(4.0) == {"b"}
    assert timers.pop_due(9.0) == {"a"}
    assert timers.next_due_s() is None


def test_a_timer_that_is_asked_for_again_and_again_is_one_timer() -> None:
    """A busy destination asks with every item, and each item is waited for for minutes."""
    timers = Timers()
    for number in range(100_000):
        timers.at(120.0 + number, "busy")
        timers.at(1e6 - number, f"d{number % 10}")
    assert len(timers) <= 2 * 11 + SPARE + 1
    assert timers.next_due_s() == 120.0


def test_a_destination_that_is_gone_is_due_no_more() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.at(100.0 + number, f"life {number}")
        timers.forget(f"life {number}")
    assert len(timers) <= SPARE + 2
    assert timers.next_due_s() is None
    assert timers.pop_due(1e9) == set()
