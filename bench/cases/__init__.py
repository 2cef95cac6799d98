"""Every case of the benchmark, in the order in which they are measured and shown."""

from __future__ import annotations

from bench.cases import (
    changes,
    crowd,
    evolve,
    expiry,
    fleet,
    freshness,
    health,
    history,
    planning,
    replay,
    routing,
    scale_out,
    seeds,
    small,
    topic,
    upkeep,
)
from bench.outcome import Case

FAMILIES = (
    changes,
    seeds,
    small,
    crowd,
    freshness,
    fleet,
    replay,
    routing,
    planning,
    history,
    health,
    expiry,
    upkeep,
    topic,
    evolve,
    scale_out,
)

CASES: dict[str, Case] = {case.name: case for family in FAMILIES for case in family.CASES}
