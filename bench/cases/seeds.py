"""Tenants that come over REST while the services run: from the request until the last of them has its rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field

from viaduck_client import Client

from bench.lakes import Lake
from bench.outcome import LIMIT, VIADUCK, Case, Measured, ratio
from bench.setting import Setting
from bench.stand import Stand, beside, open_lake, require_equal, require_right, standing
from bench.viaduck import ASK_EVERY_S, PATIENCE_S, PIPELINE, entry, running_viaduck, wait_settled
from bench.workload import DENSE, SCHEMA, SOURCE, TABLE, SourceWriter, tenant_names
from services.cli.runtime.running import RunningViaduck
from shared.lake.connection.engine import connect

SHARE = 0.75
EARLY = "early"
"""Who is there already: services that have seeded somebody are warm."""

COMING = tenant_names(DENSE)


@dataclass
class Seeds:
    """Seconds of each round, that for warmth first. Both make the lakes within that time.

    The databases that the lakes are made in are there.
    """

    viaduck_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    limit_s: list[float] = field(default_factory=list)
    compared: int = 0


def measure(setting: Setting) -> Measured:
    found = Seeds()
    with standing(setting.lakes, [EARLY]) as stand:
        SourceWriter(stand.con, SOURCE, DENSE).seed()
        early = f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} VALUES (-1, '{EARLY}', 0, '', TIMESTAMP '2026-01-01')"
        stand.con.execute(early)
        coming = [_lakes(stand, f"v{number}") for number in range(setting.runs + 1)]
        with (
            running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck,
            Client(viaduck.url, timeout_s=PATIENCE_S) as operator,
        ):
            wait_settled(viaduck, stand.head())
            for number, lakes in enumerate(coming):
                _round(number, lakes, viaduck, operator, stand, found)
        found.compared += stand.require_equal()
    what = f"{len(COMING)} tenants with {DENSE.seeded:,} rows, added over REST"
    beside = {VIADUCK: found.viaduck_s[1:], LIMIT: found.limit_s[1:]}
    return Measured([ratio(what, beside, SHARE)], {"beside": beside, **asdict(found)})


def _lakes(stand: Stand, prefix: str) -> dict[str, Lake]:
    return {tenant: stand.lakes.new(f"{prefix}_{tenant}") for tenant in COMING}


def _round(
    number: int, lakes: Mapping[str, Lake], viaduck: RunningViaduck, operator: Client, stand: Stand, found: Seeds
) -> None:
    """The tenants come and go: only one destination may want a routing value, so the next round needs them gone."""
    suffix = f"-{number}"
    began = time.time()
    made = operator.import_(PIPELINE, [entry(tenant, lake, suffix) for tenant, lake in lakes.items()])
    assert made["created"] == len(lakes), f"not all were taken: {made}"
    found.answered_s.append(round(time.time() - began, 3))
    viaduck.wait_until(f"seeding round {number}", lambda: _is_seeded(viaduck, suffix), PATIENCE_S, ASK_EVERY_S)
    found.viaduck_s.append(round(max(map(stand.lakes.last_commit, lakes.values())) - began, 3))
    found.limit_s.append(_alone(stand, _lakes(stand, f"s{number}")))
    found.compared += require_equal(stand.lakes, stand.source, lakes, suffix=suffix)
    for tenant in COMING:
        operator.remove(PIPELINE, f"{tenant}{suffix}")


def _is_seeded(viaduck: RunningViaduck, suffix: str) -> bool:
    there = [status for status in viaduck.destinations() if status["id"].endswith(suffix)]
    parked = [status for status in there if status["state"] == "parked"]
    assert not parked, f"{len(parked)} destinations are parked: {parked[0]}"
    return len(there) == len(COMING) and all(status["position"] is not None for status in there)


def _alone(stand: Stand, lakes: Mapping[str, Lake]) -> float:
    """Seconds that the single process needs for lakes that are not made yet."""
    with closing(connect()) as con:
        open_lake(con, SOURCE, stand.lakes.direct(stand.source))
        head = stand.head()
        began = time.perf_counter()
        limit = beside(con, lakes)
        limit.seed(head)
        seconds = round(time.perf_counter() - began, 3)
        require_right(limit)
    return seconds


CASES = (Case("seed", "20 tenants with 200,000 rows, added over REST while services run", measure, sqlite=True),)
