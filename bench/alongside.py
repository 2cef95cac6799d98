"""What goes on beside a measurement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def alongside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """``work`` on a thread of its own until the end of the block; it returns soon after its event is set."""
    stopped = threading.Event()
    thread = threading.Thread(target=work, args=(stopped,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
