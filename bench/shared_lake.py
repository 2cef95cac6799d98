"""What one more tenant of a shared lake costs: ``python -m bench.shared_lake --tenants 2000 --applies 2000``.

Many destinations in one lake have a table and a cursor each, so whatever looks at all of a catalog's tables costs more
with each tenant, and whatever looks at all its snapshots more with each apply. CPU of this process, for each hundred
seeds and probes, and for each hundred applies of one tenant. SQLite catalogs, in one process, without Spark.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from services.applier.model.task import Limits, Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import ItemKind, Outcome
from tests.lake.rig import ApplyRig

STEP = 100


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--tenants", type=int, default=2000)
    words.add_argument("--applies", type=int, default=2000)
    said = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="viaduck-shared-") as folder:
        rig = ApplyRig(Path(folder), _lake, limits=Limits(threads=1, most_threads=1))  # writers of one SQLite file wait
        rig.sql(
            "CREATE TABLE src.main.t (id BIGINT, tenant BIGINT, v VARCHAR)",
            "CALL src.set_option('data_inlining_row_limit', 0)",
            f"INSERT INTO src.main.t SELECT i, i % {said.tenants}, 'v' FROM range({10 * said.tenants}) r(i)",
        )
        shared = _lake("shared", Path(folder) / "shared-data")
        names = [str(number) for number in range(said.tenants)]
        for name in names:
            rig.add(name, lake=shared, table=f"t{name}")
        _steps("seeds", said.tenants, lambda at: _seed(rig, names[at : at + STEP]))
        _steps("probes", said.tenants, lambda at: _probe(rig, names[at : at + STEP]))
        _steps("applies", said.applies, lambda _: _apply(rig, names[0]))
        rig.forget()
        rig.close()


def _lake(name: str, data: Path) -> ResolvedLake:
    return ResolvedLake(f"sqlite:{data.parent / name}.sqlite", None, str(data))


def _seed(rig: ApplyRig, names: list[str]) -> None:
    _done(rig, ItemKind.SEED, [rig.target(name, ItemKind.SEED) for name in names], Outcome.APPLIED)


def _probe(rig: ApplyRig, names: list[str]) -> None:
    at = rig.head
    targets = [rig.target(name, ItemKind.PROBE, expected=at) for name in names]
    _done(rig, ItemKind.PROBE, targets, Outcome.ALREADY_APPLIED)


def _apply(rig: ApplyRig, name: str) -> None:
    for _ in range(STEP):
        before = rig.head
        rig.sql("UPDATE src.main.t SET v = v || 'w' WHERE id = 0")
        target = rig.target(name, ItemKind.CHANGES, expected=before, after=before)
        _done(rig, ItemKind.CHANGES, [target], Outcome.APPLIED)


def _done(rig: ApplyRig, kind: ItemKind, targets: list[Target], outcome: Outcome) -> None:
    answers = rig.run_targets(kind, targets)
    if {answer.outcome for answer in answers} != {outcome}:
        raise SystemExit(f"{kind}: {answers[0]}")


def _steps(what: str, count: int, work: Callable[[int], None]) -> None:
    for at in range(0, count, STEP):
        began_s, used_s = time.perf_counter(), time.process_time()
        work(at)
        used_ms = (time.process_time() - used_s) * 1000 / STEP
        print(f"{what} {at + STEP}: {used_ms:.1f} ms of CPU each, {time.perf_counter() - began_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
