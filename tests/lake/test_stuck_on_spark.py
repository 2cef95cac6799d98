"""A Python worker of Spark's that has somebody stuck in it for good ends, and no job is the worse for it."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from services.applier.group import Job, Lane
from services.applier.jobs import Jobs
from services.applier.task import Limits, SourceTable, TaskResult
from shared.config.catalogs import ResolvedLake
from shared.config.model import Config, Routing, Source, Spark
from shared.messages import ItemKind, Outcome
from shared.spark import session
from tests.fast.waiting import eventually
from tests.lake.conftest import MakeBed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_process_that_somebody_is_stuck_in_gives_its_results_and_ends(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed()
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    spark = Spark(master="local[1]", conf={"spark.local.dir": str(tmp_path)})
    source = Source(catalog="sqlite:nowhere", table="t")
    config = Config(path=tmp_path, pipeline="p", source=source, routing=Routing(field="tenant"), spark=spark,
                    state_dir=tmp_path)  # fmt: skip
    context = session(config, "stuck")
    table = SourceTable(bed.source, "main", "t", bed.routing)

    def seeded(name: str, limits: Limits) -> TaskResult:
        job = Job("p", ItemKind.SEED, (bed.target(name, ItemKind.SEED),))
        (done,) = Jobs(context, table, limits, "").run(job, Lane.SEEDS)
        return done

    with socket.create_server(("127.0.0.1", 0)) as mute:
        bed.add("a")
        words = f"postgres:host=127.0.0.1 port={mute.getsockname()[1]} dbname=x user=x"
        bed.add("deaf", lake=ResolvedLake(words, None, "/nowhere"))
        first = seeded("deaf", Limits(stall_s=2.0, deadline_s=1.0))
        second = seeded("a", bed.limits)
    context.stop()
    outcomes = [result.progress.outcome for done in (first, second) for result in done.results]
    assert outcomes == [Outcome.FAILED, Outcome.APPLIED]
    assert second.report.pid != first.report.pid
    eventually(lambda: not psutil.pid_exists(first.report.pid))
