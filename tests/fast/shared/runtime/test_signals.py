"""Signals: heard on a thread of their own, whatever the main thread does."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from typing import Any

import pytest

from shared.runtime.signals import Signals
from tests.fast.waiting import eventually


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_asks_for_the_end_and_decides_the_exit_code(number: signal.Signals, code: int) -> None:
    with Signals() as signals:
        assert signals.exit_code == 0
        signal.raise_signal(number)
        signals.wait(10.0)
        assert (signals.ended_by, signals.exit_code) == (number, code)


def test_a_signal_ends_the_waiting_at_once() -> None:
    with Signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        began = time.monotonic()
        signals.wait(30)
        assert time.monotonic() - began < 5


def test_hanging_up_asks_for_a_reload_once() -> None:
    with Signals() as signals:
        signal.raise_signal(signal.SIGHUP)
        signals.wait(10.0)
        assert signals.take_reload()
        assert not signals.take_reload()
        assert signals.ended_by is None


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_whoever_is_to_end_something_is_told_on_another_thread_and_once() -> None:
    told: list[str] = []
    with Signals() as signals:
        signals.on_end(lambda: told.append(threading.current_thread().name))
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        eventually(lambda: told)
    assert told == ["signals"]


def test_whoever_comes_after_the_signal_is_told_at_once() -> None:
    told: list[bool] = []
    with Signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signals.wait(10.0)
        signals.on_end(lambda: told.append(True))
    assert told == [True]


def test_a_signal_that_comes_while_the_main_thread_holds_the_lock_of_what_it_ends_is_no_deadlock() -> None:
    """An ``Event`` that is set by a handler waits for the lock that the interrupted thread may hold."""
    ending = threading.Event()
    with Signals() as signals:
        signals.on_end(ending.set)
        with ending._cond:  # type: ignore[attr-defined]  # as ``wait`` does for a moment
            signal.raise_signal(signal.SIGTERM)
            signals.wait(10.0)
        assert ending.wait(10.0)


SCRIPT = """
import sys, time
from shared.runtime.signals import Signals
from tests.fast.waiting import eventually
with Signals(at_once={at_once}) as signals:
    print("up", flush=True)
    {then}
raise SystemExit(signals.exit_code or 7)
"""


def started(then: str, *, at_once: bool = False, **options: Any) -> subprocess.Popen[bytes]:
    script = SCRIPT.format(at_once=at_once, then=then)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, **options)


def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.stdout.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_before_anything_is_in_hand_a_signal_ends_a_process_that_waits_inside_a_library(
    number: signal.Signals, code: int
) -> None:
    process = started("import threading; threading.Event().wait(60)", at_once=True)
    ready(process)
    process.send_signal(number)
    assert process.wait(30) == code


def test_a_process_whose_terminal_is_closed_ends() -> None:
    ours, its = pty.openpty()
    process = started("signals.wait(60)", stdin=its, start_new_session=True, preexec_fn=take_terminal)
    os.close(its)
    ready(process)
    os.close(ours)
    assert process.wait(30) == 128 + signal.SIGHUP


def take_terminal() -> None:
    """Make standard input the terminal of this session, as a shell's is, whatever ``nohup`` the tests were begun by."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_hang_up_that_a_process_without_a_terminal_is_sent_is_a_reload() -> None:
    process = started("signals.wait(60); assert signals.take_reload()", start_new_session=True)
    ready(process)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 7
