"""What a fault is: a name, how often it is done, and the function that does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.torture.rig import FaultRig

Done = Counter[str]
"""What happened, by kind: kills by point, wipes, messages sent."""


@dataclass(frozen=True)
class Fault:
    """``play`` does it ``count`` times and returns what it did; the rig's verdict comes afterwards.

    ``full`` is the count of a full run, ``brief`` that of ``make test-matrix``: seconds, of a fault that goes
    ``by_clock``. ``make test-all`` plays it ``usual`` times, where that is told.
    """

    name: str
    what: str
    play: Callable[[FaultRig, int], Done]
    full: int
    brief: int
    usual: int | None = None
    by_clock: bool = False
    durable: bool = False
    """Postgres keeps what it acknowledged, as a user's does (fsync)."""
    appliers: int = 2
    shown: bool = True
    """What is shown meanwhile must be true: of lags no service knows anything where its clock is wrong."""

    def count(self, *, whole: bool) -> int:
        """How often a test plays it: as often as the ``whole`` matrix has it, or as is usual."""
        return self.brief if whole or self.usual is None else self.usual
