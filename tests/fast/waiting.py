"""Waiting for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Return as soon as ``holds`` is true; fail after ``within_s``, far above what a busy machine needs."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"still not true after {within_s} s: {holds}"
        time.sleep(0.02)
