"""A Python worker of Spark's that has too many stuck in it for good ends, and no job is the worse for it."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from services.applier.model.grouping import Job, Lane
from services.applier.model.task import Limits, SourceTable, TaskResult
from services.applier.spark_jobs import DAEMON, SparkJobs
from services.applier.worker.worker_state import MOST_STUCK
from shared.config.catalogs import ResolvedLake
from shared.config.model import Config, Routing, Source, Spark
from shared.contracts.messages import ItemKind, Outcome
from shared.runtime.spark import session
from tests.fast.waiting import eventually
from tests.lake.conftest import MakeRig


@pytest.mark.usefixtures("spark_starts_quickly")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_process_that_many_are_stuck_in_gives_its_results_and_ends(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    spark = Spark(master="local[1]", conf={"spark.local.dir": str(tmp_path)})
    source = Source(catalog="sqlite:nowhere", table="t")
    config = Config(path=tmp_path, pipeline="p", source=source, routing=Routing(field="tenant"), spark=spark,
                    state_dir=tmp_path)  # fmt: skip
    context = session(config, "stuck", daemon=DAEMON)
    table = SourceTable(rig.source, "main", "t", rig.routing)

    def seeded(limits: Limits, *names: str) -> TaskResult:
        job = Job("p", ItemKind.SEED, tuple(rig.target(name, ItemKind.SEED) for name in names))
        (done,) = SparkJobs(context, table, limits, "").run(job, Lane.SEEDS)
        return done

    with socket.create_server(("127.0.0.1", 0)) as mute:
        rig.add("a")
        words = f"postgres:host=127.0.0.1 port={mute.getsockname()[1]} user=x connect_timeout=600"
        deaf = [f"deaf-{number}" for number in range(MOST_STUCK + 1)]
        for name in deaf:
            rig.add(name, lake=ResolvedLake(f"{words} dbname={name}", None, "/nowhere"))
        impatient = Limits(stall_s=2.0, deadline_s=1.0, seed_deadline_s=1.0)
        one = seeded(impatient, deaf[0])
        first, more = (seeded(impatient, *deaf[1:]) for _ in range(2))
        second = seeded(rig.limits, "a")
    context.stop()
    for done in (one, first, more):
        assert {result.progress.outcome for result in done.results} == {Outcome.FAILED}
    assert [result.progress.outcome for result in second.results] == [Outcome.APPLIED]
    assert first.report.pid == one.report.pid, "one that is left behind costs nobody else the process"
    assert second.report.pid != first.report.pid
    eventually(lambda: not psutil.pid_exists(first.report.pid))
