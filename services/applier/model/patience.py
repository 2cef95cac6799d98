"""How long a lane waits for more of a burst of items whose first ones are here."""

from __future__ import annotations

LEAST_S, MOST_S = 0.01, 0.1

OF_A_READ = 0.08
"""An item that comes when a job has begun needs another job, which reads the source again: it is waited for as long as
a part of that takes."""


def patience_s(read_s: float) -> float:
    """Seconds without another item after which a burst is over; ``read_s``: what reading the source took last."""
    return min(MOST_S, max(LEAST_S, OF_A_READ * read_s))
