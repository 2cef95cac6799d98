"""What a signal does to a command that ends by itself."""

from __future__ import annotations

import os
import signal

import pytest

from services.cli.runtime.interruptible import Interruption, interruptible


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_unwinds_and_becomes_the_exit_code(number: signal.Signals, code: int) -> None:
    unwound: list[str] = []

    def work(_: Interruption) -> int:
        try:
            send(number)
            raise AssertionError("not interrupted")
        finally:
            unwound.append("cleaned up")

    assert interruptible(work) == code
    assert unwound == ["cleaned up"]


def test_a_second_signal_does_not_disturb_the_clean_up() -> None:
    steps: list[str] = []

    def work(_: Interruption) -> int:
        try:
            send(signal.SIGINT)
        finally:
            send(signal.SIGINT)
            send(signal.SIGTERM)
            steps.append("cleaned up")
        return 0

    assert interruptible(work) == 130
    assert steps == ["cleaned up"]


def test_a_signal_waits_for_the_end_of_what_must_not_be_cut_short() -> None:
    steps: list[str] = []

    def work(interruption: Interruption) -> int:
        with interruption.held():
            send(signal.SIGINT)
            steps.append("finished")
        steps.append("went on")
        return 0

    assert interruptible(work) == 130
    assert steps == ["finished"]


def test_an_error_that_an_interruption_turned_into_is_the_interruption() -> None:
    def work(_: Interruption) -> int:
        try:
            send(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None
        return 0

    assert interruptible(work) == 130


def test_any_other_error_stays_what_it_is() -> None:
    def work(_: Interruption) -> int:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        interruptible(work)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert interruptible(lambda _: 7) == 7
    assert signal.getsignal(signal.SIGINT) is before
