"""The signals of a process that runs until it is told to stop: the only place that handles them.

A handler runs in the middle of the main thread's work, and may deadlock on a lock that the main
thread holds; nor does it run while that thread is inside a library. So handlers do nothing here. Python writes each
signal's number to a socket, a thread reads it, and that thread does the work.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from shared.runtime.background import Background

ENDING = (signal.SIGINT, signal.SIGTERM)
HEARD = (*ENDING, signal.SIGHUP)

LISTEN_S = 10.0
"""How long the thread that hears signals waits for one before it shows that it is alive."""

END_WITHIN_S = 5.0

OnEnd = Callable[[], None]
"""Asks for an orderly end. Called on the signals' thread, once, and must return soon."""


class Signals:
    """From ``with`` to its end, SIGINT and SIGTERM ask for the end and SIGHUP for a reload. Main thread only.

    SIGHUP asks for the end, too, where the terminal that the process was started from is gone.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        """``at_once``: the process ends with the first signal until ``on_end`` was told what to do instead: nothing
        is in hand yet, and the main thread may be waiting for something that doesn't answer."""
        self.ended_by: int | None = None
        self._at_once = at_once
        self._on_end: OnEnd | None = None
        self._on_reload: Callable[[], None] | None = None
        self._reload = False
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self._ours, self._pythons = socket.socketpair()
        self._pythons.setblocking(False)
        self._has_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._fd_before = signal.set_wakeup_fd(self._pythons.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _nothing) for number in HEARD}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self._ours.settimeout(LISTEN_S)
        self._loop = Background("signals", self._listen)
        self._loop.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._pythons.close()
        self._loop.stop(END_WITHIN_S)
        self._ours.close()

    @property
    def exit_code(self) -> int:
        """128 + the signal that asked for the end; 0 if none did."""
        return 0 if self.ended_by is None else 128 + self.ended_by

    def on_end(self, ask: OnEnd) -> None:
        """What is to be done when a signal asks for the end; at once where one has."""
        with self._changed:
            self._on_end, ended = ask, self.ended_by is not None
        if ended:
            ask()

    def on_reload(self, ask: Callable[[], None]) -> None:
        """What is to be done at each SIGHUP."""
        self._on_reload = ask

    def wait(self, timeout_s: float) -> None:
        """Until the end or a reload is asked for, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended_by is not None or self._reload, timeout_s)

    def take_reload(self) -> bool:
        with self._changed:
            asked, self._reload = self._reload, False
            return asked

    def _listen(self, loop: Background) -> None:
        while True:
            loop.turned()
            try:
                numbers = self._ours.recv(64)
            except TimeoutError:
                continue
            if not numbers:
                return
            for number in numbers:
                self._hear(number)

    def _hear(self, number: int) -> None:
        if number == signal.SIGHUP and not (self._has_terminal and not has_terminal()):
            with self._changed:
                self._reload = True
                self._changed.notify_all()
            if self._on_reload is not None:
                self._on_reload()
        elif number in HEARD:
            self._end(number)

    def _end(self, number: int) -> None:
        with self._changed:
            if self.ended_by is not None:
                return
            self.ended_by, ask = number, self._on_end
            self._changed.notify_all()
        if ask is not None:
            ask()
        elif self._at_once:
            end_now(128 + number)


def end_now(code: int) -> None:
    """End the process from whatever thread, without waiting for any."""
    sys.stderr.flush()
    os._exit(code)


def has_terminal() -> bool:
    """Whether the process has a terminal that can still be opened."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _nothing(_: int, __: FrameType | None) -> None:
    """Python only writes a signal's number where it has a handler."""
