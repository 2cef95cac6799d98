"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

SOON_S, LATER_S, SHARE = 0.02, 0.3, 0.05
"""Seconds between two looks: a share of what was waited so far, so that looking costs little where it takes long."""


def eventually(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Return soon after ``holds`` is true; fail after ``within_s``, far above what a busy machine needs."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < within_s, f"still not true after {within_s} s: {holds}"
        time.sleep(pause(waited))


def pause(waited_s: float) -> float:
    """How long to wait for the next look at something that has been waited for."""
    return min(LATER_S, max(SOON_S, SHARE * waited_s))
