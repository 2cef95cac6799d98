"""One seed, one whole life: a source with a random history, destinations, an unreliable courier, and the verdict."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb

from shared.messages import SeedMode
from tests.world.courier import Courier
from tests.world.history import History, random_history
from tests.world.lake import Lake
from tests.world.oracle import check_all, check_source
from tests.world.source import SourceLake
from tests.world.stage import Receiver, Run, forget_lakes, receiver, run_here, source_table

SHORTEST, LONGEST = 5, 13


@dataclass
class Life:
    """What happened, and what is wrong with it; ``str()`` tells both."""

    seed: int
    history: History
    mode: SeedMode
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.mode}, {self.history.shape}", *self.log, *self.wrong])


def play(con: duckdb.DuckDBPyConnection, seed: int, run: Run = run_here) -> Life:
    """Live through the history of ``seed``. ``run`` does a task; by default the applier's function in this process."""
    rng = Random(seed)
    append_only, expire = rng.random() < 0.2, rng.random() < 0.1
    steps = rng.randint(SHORTEST, LONGEST)
    history = random_history(rng, steps=steps, append_only=append_only, expire=expire, replaces=True)
    modes = [SeedMode.SCAN, SeedMode.SCAN, SeedMode.REPLAY] + ([] if append_only else [SeedMode.LATEST])
    life = Life(seed, history, rng.choice(modes))
    with tempfile.TemporaryDirectory(prefix="viaduck-life-") as folder:
        try:
            _live(con, Path(folder), rng, life, run)
        finally:
            forget_lakes()
    return life


def _live(con: duckdb.DuckDBPyConnection, folder: Path, rng: Random, life: Life, run: Run) -> None:
    source = SourceLake(con, Lake.in_folder(folder / "source"), life.history.shape)
    source.create()
    try:
        receivers = _receivers(folder, source, life.mode, left_out=rng.randint(0, 1))
        courier = Courier(rng, source, source_table(source.lake, source.shape), receivers, run, life.log)
        for step in life.history.steps:
            source.run(step)
            life.log.append(f"source {source.truth.head}: {step}")
            if rng.random() < 0.5:
                courier.act()
        courier.settle()
        found = check_all(con, [one.promised for one in receivers], source.truth, head=source.truth.head)
        found += check_source(con, source.lake, source.truth)
        life.wrong += [*source.differences(), *courier.wrong, *map(str, found)]
    finally:
        source.close()


def _receivers(folder: Path, source: SourceLake, mode: SeedMode, left_out: int) -> list[Receiver]:
    """One destination for each tenant, or for all but the first: the first two tenants share a lake."""
    return [
        receiver(
            folder / f"lake {max(number, 1)}",
            source.truth,
            source.shape,
            f"tenant-{number}",
            tenant,
            mode=mode,
            table=f"events {number}",
        )
        for number, tenant in enumerate(source.shape.tenants)
        if number >= left_out
    ]
