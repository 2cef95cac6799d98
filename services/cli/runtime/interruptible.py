"""Signals for a command that ends by itself: it unwinds once, cleans up undisturbed, and says which signal it was."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from shared.runtime.signals import ENDING


class Interruption:
    """What was heard so far. Only the first signal interrupts: a second must not cut the clean-up short."""

    def __init__(self) -> None:
        self.heard: int | None = None
        self._held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """A signal that arrives in the block interrupts at its end.

        Starting Spark is such a block: a JVM whose parent ends during its start never exits.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self.heard is not None:
            raise KeyboardInterrupt

    def hear(self, number: int, _: FrameType | None = None) -> None:
        if self.heard is not None:
            return
        self.heard = number
        if not self._held:
            raise KeyboardInterrupt


def interruptible(work: Callable[[Interruption], int]) -> int:
    """The exit code of ``work``, or 128 + the signal that interrupted it."""
    interruption = Interruption()
    before = {number: signal.signal(number, interruption.hear) for number in ENDING}
    try:
        return work(interruption)
    except (KeyboardInterrupt, Exception):
        # DuckDB and Spark make errors of their own of an interruption, so whatever unwinds after one is its doing.
        if interruption.heard is None:
            raise
        return 128 + interruption.heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
