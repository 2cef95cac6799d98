from __future__ import annotations

import pytest

from services.reader.timers import Timers
from shared.backoff import LONGEST_S, delay_s


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
