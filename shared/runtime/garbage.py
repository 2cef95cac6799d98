"""When a process searches for garbage: not while it imports, and never among what it has imported, which stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import within. Classes are full of cycles, which are searched time and again while more of them are made, and
    none of them is garbage: a tenth of what an import costs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def spare_what_exists() -> None:
    """No search looks again at what there is now: neither while a service runs nor as its process ends, which would
    take longer than many a command. For processes of ours alone: garbage that exists now stays, too."""
    gc.freeze()
