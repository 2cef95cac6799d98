"""When nothing more of a task is begun."""

from __future__ import annotations

from contextlib import suppress

import pytest

from services.applier.worker.turn import TURN_S, TaskTurn


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("elsewhere_s", "read_s", "done", "is_late"),
    [
        (TURN_S + 1, 0.0, 1, True),
        (TURN_S - 1, 0.0, 1, False),
        (TURN_S + 1, 2 * TURN_S, 1, False),
        (2 * TURN_S + 1, 2 * TURN_S, 1, True),
        (9 * TURN_S, 0.0, 0, False),
        (TURN_S + 1, 0.0, 60, True),
        (TURN_S + 1, 0.0, 70, False),
    ],
)
def test_a_turn_is_over_after_its_time_or_after_as_long_as_was_read_unless_little_is_left(
    elsewhere_s: float, read_s: float, done: int, *, is_late: bool
) -> None:
    clock = Clock()
    turn = TaskTurn(clock)
    clock.now_s += elsewhere_s / 2
    for _ in range(2):
        with turn.reading():
            clock.now_s += read_s / 2
    clock.now_s += elsewhere_s / 2
    assert turn.is_over(done, 100 - done) is is_late


def test_a_reading_that_fails_took_its_time_too() -> None:
    clock = Clock()
    turn = TaskTurn(clock)
    with suppress(KeyError), turn.reading():
        clock.now_s += 2 * TURN_S
        raise KeyError
    assert turn.last_read_s == 2 * TURN_S
    assert not turn.is_over(1, 99)
