"""How old a change is when it is in its tenant's lake, under a stream of small commits."""

from __future__ import annotations

from dataclasses import asdict

from bench.freshness import Stream, measure
from bench.outcome import Case, Measured, at_most
from bench.setting import Setting

COMMITS_PER_S = 5.0
P50_S, P99_S = 2.0, 5.0


def fresh(setting: Setting) -> Measured:
    tenants, seconds = setting.sized(quick=(30, 20.0), full=(100, 60.0))
    found = measure(setting.on_postgres, setting.folder, Stream(tenants, COMMITS_PER_S, seconds))
    checks = [at_most("age at arrival, p50", found.p50_s, P50_S, "s"),
              at_most("age at arrival, p99", found.p99_s, P99_S, "s")]  # fmt: skip
    return Measured(checks, asdict(found))


CASES = (Case("freshness", "100 tenants, 5 small commits a second for a minute (quick: 30, 20 s)", fresh),)
