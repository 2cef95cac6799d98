"""What Spark's Python workers keep between jobs: each its own destinations, and what imports made for good."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.applier.model.grouping import Job, Lane
from services.applier.model.task import SourceTable, TaskResult
from services.applier.spark_jobs import DAEMON, SparkJobs
from services.applier.worker.spark_task import MANY_OBJECTS
from shared.config.model import Config, Routing, Source, Spark
from shared.contracts.messages import ItemKind, Outcome
from shared.runtime.spark import session
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

TENANTS = [f"tenant{number}" for number in range(20)]


@pytest.mark.usefixtures("spark_starts_quickly")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_lake_is_opened_by_one_worker_only_and_what_stays_is_not_searched_for_garbage(
    make_rig: MakeRig, tmp_path: Path
) -> None:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v BIGINT)", inserted(0))
    for tenant in TENANTS:
        rig.add(tenant)
    spark = Spark(master="local[2]", conf={"spark.local.dir": str(tmp_path)})
    source = Source(catalog="sqlite:nowhere", table="t")
    config = Config(path=tmp_path, pipeline="p", source=source, routing=Routing(field="tenant"), spark=spark,
                    state_dir=tmp_path)  # fmt: skip
    context = session(config, "homes", daemon=DAEMON)
    jobs = SparkJobs(context, SourceTable(rig.source, "main", "t", rig.routing), rig.limits, "")

    seeds = Job("p", ItemKind.SEED, tuple(rig.target(name, ItemKind.SEED) for name in TENANTS))
    done = [jobs.run(seeds, Lane.SEEDS), *[jobs.run(changes(rig, number), Lane.CHANGES) for number in range(1, 6)]]
    begun = context.statusTracker().getJobIdsForGroup()
    searched = context.parallelize([0], 1).map(lambda _: len(gc.get_objects())).collect()
    context.stop()

    assert all(result.progress.outcome is Outcome.APPLIED for job in done for task in job for result in task.results)
    assert [sum(len(task.results) for task in job) for job in done] == [len(TENANTS)] * len(done)
    assert len(begun) == len(done), "one Spark job for each"
    assert open_lakes(done) == [len(TENANTS) // 2 + 1] * 2, "half of the destinations, and the source, in each"
    assert searched[0] < MANY_OBJECTS


def inserted(number: int) -> str:
    rows = ", ".join(f"({number * 100 + place}, '{name}', {number})" for place, name in enumerate(TENANTS))
    return f"INSERT INTO src.main.t VALUES {rows}"


def changes(rig: ApplyRig, number: int) -> Job:
    """Items for everybody, in another order each time."""
    before = rig.head
    rig.sql(inserted(number))
    names = random.Random(number).sample(TENANTS, len(TENANTS))
    targets = [rig.target(name, ItemKind.CHANGES, expected=before, after=before, rows=1) for name in names]
    return Job("p", ItemKind.CHANGES, tuple(targets))


def open_lakes(done: Sequence[Sequence[TaskResult]]) -> list[int]:
    """Of each worker process, by what it said last."""
    return list({task.report.pid: task.report.open_lakes for job in done for task in job}.values())
