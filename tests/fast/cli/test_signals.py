from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from services.cli.signals import Signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_asks_for_the_end_and_decides_the_exit_code(number: signal.Signals, code: int) -> None:
    with Signals() as signals:
        assert signals.exit_code == 0
        signal.raise_signal(number)
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
        assert signals.take_reload()
        assert not signals.take_reload()
        assert signals.ended_by is None


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (None, 0)])
def test_a_service_that_ends_well_after_a_signal_tells_which(number: signal.Signals | None, code: int) -> None:
    script = (
        "import signal, threading\n"
        "from services.cli.dispatch import SignalsHeard\n"
        "heard, stop = SignalsHeard(), threading.Event()\n"
        "for n in (signal.SIGTERM, signal.SIGINT): signal.signal(n, lambda *_: stop.set())\n"
        "print('up', flush=True)\n"
        f"stop.wait({0.1 if number is None else 60})\n"
        "raise SystemExit(heard.exit_code())"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    if number is not None:
        process.send_signal(number)
    assert process.wait(30) == code
    process.stdout.close()
