"""The signals of a command that runs until it is told to stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

ENDING = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """From ``with`` to its end, SIGINT and SIGTERM ask for the end and SIGHUP for a reload, instead of acting."""

    def __init__(self) -> None:
        self.ended_by: int | None = None
        self._reload = False
        self._woken = threading.Event()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._heard) for number in (*ENDING, signal.SIGHUP)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, timeout_s: float) -> None:
        """Until something was heard, or the time is over."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def take_reload(self) -> bool:
        asked, self._reload = self._reload, False
        return asked

    @property
    def exit_code(self) -> int:
        return 0 if self.ended_by is None else 128 + self.ended_by

    def _heard(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._reload = True
        else:
            self.ended_by = number
        self._woken.set()
