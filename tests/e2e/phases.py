"""One deployment that goes through several stages, since each start takes seconds of CPU: a failure tells its stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def phase(what: str) -> Iterator[None]:
    """What fails meanwhile failed in this stage."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the stage of the test: {what}")
        raise
