"""How many of control's threads may wait for lakes: a lake may be anyone's, and its server may answer nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shared.contracts.errors import DependencyError

MOST = 16
"""Of the 40 threads that answer requests: the others can still pause, resume and change."""

FREE_WITHIN_S = 0.5

_free = threading.BoundedSemaphore(MOST)


@contextmanager
def looking() -> Iterator[None]:
    """Around a look at a lake for a request. Raises ``DependencyError`` where too many wait already."""
    if not _free.acquire(timeout=FREE_WITHIN_S):
        said = f"{MOST} requests wait for lakes already"
        raise DependencyError("lakes", said, "try again in a minute; a catalog among them may not answer")
    try:
        yield
    finally:
        _free.release()
