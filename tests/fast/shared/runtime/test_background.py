"""Long-lived loops: what ends one is told by name, and it begins again."""

from __future__ import annotations

import threading

import pytest

from shared.runtime.background import (
    FIRST_PAUSE_S,
    FORGOTTEN_AFTER_S,
    LONGEST_PAUSE_S,
    TURNS_WITHIN_S,
    Background,
    Heartbeat,
    Threaded,
    problems,
    standing_still,
)
from tests.fast.waiting import eventually


def test_a_loop_that_an_error_nobody_thought_of_has_ended_begins_again_and_is_told_of_by_name() -> None:
    lives: list[int] = []

    def work(loop: Background) -> None:
        lives.append(1)
        if len(lives) < 3:
            raise TimeoutError("the broker is silent")
        while not loop.stopped.wait(0.01):
            loop.turned()

    loop = Background("watch of topics", work)
    loop.start()
    try:
        eventually(lambda: len(lives) == 3)
        assert loop.is_alive
        assert problems() == {"thread watch of topics": "ended by TimeoutError; it begins again"}
    finally:
        loop.stop(5.0)
    assert problems() == {}
    assert not loop.is_alive


def test_a_process_is_ready_again_within_a_minute_after_what_ended_its_loops_is_gone() -> None:
    """A loop waits before it begins again, and is told of until it has turned for a while: both count."""
    assert LONGEST_PAUSE_S + FORGOTTEN_AFTER_S <= 30.0


def test_what_ended_a_loop_is_forgotten_once_it_has_turned_for_a_while() -> None:
    clock, lives, second = [0.0], [0], threading.Event()

    def work(loop: Background) -> None:
        lives[0] += 1
        if lives[0] == 1:
            raise ValueError
        second.set()
        while not loop.stopped.wait(0.01):
            loop.turned()

    loop = Background("one", work, clock=lambda: clock[0])
    loop.start()
    try:
        assert second.wait(10.0)
        assert loop.problem is not None
        clock[0] += FORGOTTEN_AFTER_S + 1.0
        eventually(lambda: loop.problem is None)
    finally:
        loop.stop(5.0)


def test_a_loop_whose_service_is_to_end_with_it_says_so_and_ends() -> None:
    heard: list[Exception] = []

    def work(_: Background) -> None:
        raise KeyError("x")

    loop = Background("one", work, on_error=heard.append)
    loop.start()
    eventually(lambda: not loop.is_alive)
    assert [type(error) for error in heard] == [KeyError]


def test_a_loop_that_does_not_turn_any_more_is_seen() -> None:
    clock = [0.0]
    beat = Heartbeat("reader", clock=lambda: clock[0])
    beat.begin()
    try:
        clock[0] = TURNS_WITHIN_S
        assert standing_still() == {}
        clock[0] += 1.0
        assert standing_still() == {"reader": f"has not turned for {TURNS_WITHIN_S + 1:.0f} s"}
        assert "thread reader" in problems()
        beat.turned()
        assert standing_still() == {}
    finally:
        beat.end()


@pytest.mark.parametrize("told", [True, False])
def test_a_loop_ends_when_it_is_told_to_also_while_it_waits_to_begin_again(told: bool) -> None:
    def work(loop: Background) -> None:
        if told:
            loop.stopped.wait(5.0)
        else:
            raise ValueError

    loop = Background("one", work)
    loop.start()
    if not told:
        eventually(lambda: loop.problem)
    loop.stop(FIRST_PAUSE_S + 5.0)
    assert not loop.is_alive


def test_a_loop_that_waits_for_an_event_is_woken_when_it_is_told_to_stop() -> None:
    asked = threading.Event()
    one = _Waiting(asked)
    one.start()
    one.tell_to_stop()
    eventually(lambda: not one.is_alive)
    one.stop(0.0)


class _Waiting(Threaded):
    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked
        self._loop = Background("one", self._run, wakes=asked)

    def _run(self, _: Background) -> None:
        self._asked.wait(60.0)

    @property
    def is_alive(self) -> bool:
        return self._loop.is_alive
