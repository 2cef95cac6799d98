"""Many rows of which few are anybody's: what routing costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median

from bench.outcome import Case, Measured, at_least, at_most
from bench.processes import frozen
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import Options, phase_seconds, phases_since, running_viaduck, wait_caught_up, wait_settled
from bench.workload import DECLARED, SCHEMA, SOURCE, TABLE
from services.cli.runtime.running import RunningViaduck

ROWS, VALUES, DESTINATIONS = 1_000_000, 10_000, 20
ROUTING_S, ROWS_PER_S = 2.0, 300_000.0
TENANTS = [f"value{number:05d}" for number in range(0, VALUES, VALUES // DESTINATIONS)]


@dataclass(frozen=True)
class Routed:
    """Seconds from the moment a batch was there to the last destination's commit, and by phase."""

    seconds: float
    phases: Mapping[str, float]

    @property
    def routing_s(self) -> float:
        """All but the applies: the look, the count, Kafka, and reading the rows to give each to whose it is."""
        return self.seconds - self.phases["apply"]


def measure(setting: Setting) -> Measured:
    with standing(setting.lakes, TENANTS) as stand:
        stand.con.execute(f"CREATE TABLE {SOURCE}.{SCHEMA}.{TABLE} ({DECLARED})")
        _insert(stand, VALUES)
        with running_viaduck(setting.folder, stand.source, stand.mirror, Options(keyed=False)) as viaduck:
            wait_settled(viaduck, stand.head())
            _route(viaduck, stand)
            found = [_route(viaduck, stand) for _ in range(setting.runs)]
        compared = stand.require_equal(keyed=False)
    seconds = median(each.seconds for each in found)
    checks = [
        at_most(f"{ROWS:,} rows over {VALUES:,} values: all but the applies", median(each.routing_s for each in found),
                ROUTING_S, "s"),
        at_least("rows a second from end to end", ROWS / seconds, ROWS_PER_S, digits=0),
    ]  # fmt: skip
    return Measured(checks, {"batches": [asdict(each) for each in found], "compared": compared})


def _route(viaduck: RunningViaduck, stand: Stand) -> Routed:
    before = phase_seconds(viaduck)
    with frozen(viaduck.pid, "reader"):
        _insert(stand, ROWS)
    there_at = time.time()
    wait_caught_up(viaduck, stand.head())
    return Routed(round(stand.last_commit() - there_at, 3), phases_since(viaduck, before))


def _insert(stand: Stand, rows: int) -> None:
    stand.con.execute(
        f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} SELECT i, printf('value%05d', i % {VALUES}), (i % 100000) / 100,"
        f" 'a note about row ' || i, TIMESTAMP '2026-01-01' + to_seconds(i) FROM range({rows}) r(i)"
    )


CASES = (Case("routing", "1M rows over 10,000 routing values, 20 of them destinations, append-only", measure),)
