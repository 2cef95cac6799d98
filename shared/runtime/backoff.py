"""How long a failed destination waits for its next item."""

from __future__ import annotations

FIRST_S = 1.0
LONGEST_S = 300.0


def delay_s(failures: int, jitter: float) -> float:
    """Seconds after the ``failures``-th failure in a row: doubling from 1 s to 5 min, times 1 to 1.25 by ``jitter``.

    ``jitter`` is in [0, 1); without it destinations that failed together would retry together every time.
    """
    doublings = min(max(failures, 1) - 1, 20)
    return min(FIRST_S * (1 << doublings), LONGEST_S) * (1 + jitter / 4)
