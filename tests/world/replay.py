"""How many histories a run lives through, which ones, and how a failing one is lived through again.

By default they are always the same and few; with ``VIADUCK_PROFILE=soak`` many more and other ones in every run; with
``VIADUCK_SEED=123`` only that one.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

SEED = os.environ.get("VIADUCK_SEED")
SOAK = os.environ.get("VIADUCK_PROFILE") == "soak"
STRIDE = 10**9
SEEDS = st.just(int(SEED)) if SEED else st.integers(0, STRIDE - 1)


def parts(count: int) -> range:
    """Tests of their own, so that none takes long."""
    return range(1 if SEED else count)


def histories(each: int, *, soak: int) -> settings:
    """So many seeds for each part, and in a ``soak``. A seed can't be made simpler, so none shrinks."""
    return settings(
        max_examples=1 if SEED else soak if SOAK else each,
        derandomize=not SOAK,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def seed_of(part: int, drawn: int) -> int:
    """The seed of a history. Parts draw alike, so each has a range of its own."""
    return drawn if SEED else part * STRIDE + drawn


def again(seed: int, test: str) -> str:
    """What to type to live through it again."""
    return f"again: VIADUCK_SEED={seed} .venv/bin/python -m pytest {test}"
