"""One seed, one whole life: a source with a random history, destinations, an unreliable courier, and the verdict."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb

from services.applier.task import SourceTable
from services.applier.worker import run_task, worker
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.messages import DesiredState, LakeRef, SeedMode
from shared.messages import Destination as Desired
from tests.world.courier import LIMITS, Courier, Receiver, Run
from tests.world.destination import Destination, Promise
from tests.world.history import History, random_history
from tests.world.holdings import Holdings
from tests.world.lake import Lake
from tests.world.oracle import check_all, check_source
from tests.world.shape import Shape
from tests.world.source import SourceLake

PIPELINE = "events"
SHORTEST, LONGEST = 6, 14


@dataclass
class Life:
    """What happened, and what is wrong with it; ``str()`` tells both."""

    seed: int
    history: History
    mode: SeedMode
    courier_log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        steps = "\n".join(self.courier_log)
        return "\n".join([f"seed {self.seed}: {self.mode}, {self.history.shape}", steps, *self.wrong])


def play(con: duckdb.DuckDBPyConnection, seed: int, run: Run | None = None) -> Life:
    """Live through the history of ``seed``. ``run`` does a task; by default the applier's function in this process."""
    rng = Random(seed)
    append_only, expire = rng.random() < 0.2, rng.random() < 0.1
    history = random_history(rng, steps=rng.randint(SHORTEST, LONGEST), append_only=append_only, expire=expire)
    mode = _mode(rng, append_only=append_only)
    life = Life(seed, history, mode)
    with tempfile.TemporaryDirectory(prefix="viaduck-life-") as folder:
        try:
            _live(con, Path(folder), rng, life, run or run_task)
        finally:
            worker(LIMITS).pool.close()  # its lakes go with the folder
    return life


def _mode(rng: Random, *, append_only: bool) -> SeedMode:
    modes = [SeedMode.SCAN, SeedMode.REPLAY] if append_only else list(SeedMode)
    return rng.choice([SeedMode.SCAN, *modes])


def _live(con: duckdb.DuckDBPyConnection, folder: Path, rng: Random, life: Life, run: Run) -> None:
    source = SourceLake(con, Lake.in_folder(folder / "source"), life.history.shape)
    source.create()
    try:
        receivers, promised = _destinations(folder, source, life.mode)
        courier = _courier(rng, source, receivers, run, life.courier_log)
        for step in life.history.steps:
            source.run(step)
            life.courier_log.append(f"source {source.truth.head}: {step}")
            if rng.random() < 0.5:
                courier.act()
        courier.settle()
        found = [*check_all(con, promised, source.truth, head=source.truth.head)]
        found += check_source(con, source.lake, source.truth)
        life.wrong += [*source.differences(), *courier.wrong, *map(str, found)]
    finally:
        source.close()


def _courier(rng: Random, source: SourceLake, receivers: list[Receiver], run: Run, log: list[str]) -> Courier:
    shape = source.shape
    routing = Routing(field=shape.routing, key_columns=() if shape.append_only else shape.keys)
    table = SourceTable(resolved(source.lake), shape.schema, shape.table, routing)
    return Courier(rng, table, receivers, source.truth, run, source.oldest, lambda: source.truth.head, log=log)


def _destinations(folder: Path, source: SourceLake, mode: SeedMode) -> tuple[list[Receiver], list[Destination]]:
    """One destination for each tenant: the first two share a lake, the others have one of their own."""
    receivers, promised = [], []
    for number, tenant in enumerate(source.shape.tenants):
        lake = Lake.in_folder(folder / f"lake {max(number, 1)}")
        mine = Destination(
            lake=lake,
            table=f"events {number}",
            pipeline=PIPELINE,
            id=f"tenant-{number}",
            value=tenant,
            schema=source.shape.schema,
            promise=promise(source.shape, mode),
            keys=source.shape.keys,
        )
        promised.append(mine)
        receivers.append(Receiver(desired(mine, mode), resolved(lake), Holdings(mine, source.truth)))
    return receivers, promised


def promise(shape: Shape, mode: SeedMode) -> Promise:
    if shape.append_only:
        return Promise.APPEND_ONLY
    return Promise.LATEST if mode is SeedMode.LATEST else Promise.SLICE


def desired(destination: Destination, mode: SeedMode = SeedMode.SCAN) -> Desired:
    """The message that asks for a destination."""
    return Desired(
        pipeline=destination.pipeline,
        destination=destination.id,
        generation=1,
        routing_value=destination.value,
        state=DesiredState.RUNNING,
        lake=LakeRef(catalog=destination.lake.catalog, data_path=destination.lake.data_path),
        schema_name=destination.schema,
        table=destination.table,
        seed_mode=mode,
        revision="1",
    )


def resolved(lake: Lake) -> ResolvedLake:
    return ResolvedLake(lake.catalog, lake.metadata_schema, lake.data_path)
