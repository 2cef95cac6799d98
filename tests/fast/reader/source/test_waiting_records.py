"""For how long records of a topic wait, told without reading one."""

from __future__ import annotations

import pytest

from services.reader.source.waiting_records import MOST_LOOKS, WaitingRecords, longest
from shared.contracts.positions import Vector


def vector(*offsets: int) -> Vector:
    return Vector.of(dict(enumerate(offsets)))


@pytest.fixture
def waiting() -> WaitingRecords:
    return WaitingRecords()


def test_a_record_waits_since_the_last_look_that_did_not_see_it(waiting: WaitingRecords) -> None:
    assert waiting.look(vector(3, 3), vector(3, 3), 10.0) == {}
    assert waiting.look(vector(3, 3), vector(3, 3), 12.0) == {}
    assert waiting.look(vector(3, 5), vector(3, 3), 15.0) == {1: 3.0}
    assert waiting.look(vector(3, 9), vector(3, 3), 16.0) == {1: 4.0}


def test_a_steady_flow_that_is_written_in_time_does_not_seem_ever_later(waiting: WaitingRecords) -> None:
    for second in range(3 * MOST_LOOKS):
        waits = waiting.look(vector(second), vector(max(0, second - 2)), float(second))
        assert max(waits.values(), default=0.0) <= 2.0


def test_records_of_before_the_first_look_have_waited_since_then_at_least(waiting: WaitingRecords) -> None:
    waiting.look(vector(9), vector(1), 10.0)
    assert waiting.look(vector(9), vector(4), 25.0) == {0: 15.0}


def test_of_too_many_looks_some_are_forgotten_and_none_waits_shorter_for_it(waiting: WaitingRecords) -> None:
    for second in range(4 * MOST_LOOKS):
        waiting.look(vector(second), vector(), float(second))
    now_s = float(4 * MOST_LOOKS)
    (told,) = waiting.look(vector(4 * MOST_LOOKS), vector(3_000), now_s).values()
    assert now_s - 3_000 <= told <= now_s - 2_500


def test_a_log_that_lost_records_is_another_one(waiting: WaitingRecords) -> None:
    waiting.look(vector(9), vector(3), 10.0)
    assert waiting.look(vector(5), vector(3), 20.0) == {0: 0.0}


def test_a_position_that_is_not_known_says_nothing(waiting: WaitingRecords) -> None:
    assert waiting.look(vector(9), None, 10.0) == {}


def test_of_many_partitions_those_that_waited_longest_are_told() -> None:
    assert longest({3: 1.0, 1: 9.00049, 2: 4.0}, 2) == {1: 9.0, 2: 4.0}
