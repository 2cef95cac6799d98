"""A small tenant whose seed is done is told of while a large one of its job is still at it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from services.applier.apply.transaction import DestinationApplier
from services.applier.model.grouping import Job, Lane
from services.applier.model.task import SourceTable, Task
from services.applier.spark_jobs import DAEMON, SparkJobs
from services.applier.worker.answer_files import take
from services.applier.worker.task_run import run_task
from shared.config.model import Config, Routing, Source, Spark
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.runtime.spark import session
from tests.fast.waiting import eventually
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

LARGE, SMALL = 4_000_000, 3
ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


def two_tenants(make_rig: MakeRig, rows: int) -> ApplyRig:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        f"INSERT INTO src.main.t SELECT i, 'large', md5(i::VARCHAR) FROM range({rows}) r(i)",
        f"INSERT INTO src.main.t SELECT -i - 1, 'small', 'x' FROM range({SMALL}) r(i)",
    )
    for name in ("large", "small"):
        rig.add(name)
    return rig


@ON_SQLITE
def test_a_task_leaves_an_answer_while_another_apply_goes_on(
    make_rig: MakeRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, released, apply = two_tenants(make_rig, SMALL), threading.Event(), DestinationApplier.apply

    def slow(applier: DestinationApplier, change: Any) -> Any:
        if change.target.destination.destination == "large":
            assert released.wait(30)
        return apply(applier, change)

    monkeypatch.setattr(DestinationApplier, "apply", slow)
    folder, found, ended = tmp_path / "job", list[Progress](), list[Progress]()
    folder.mkdir()
    targets = tuple(rig.target(name, ItemKind.SEED) for name in rig.destinations)
    task = Task(ItemKind.SEED, SourceTable(rig.source, "main", "t", rig.routing), targets, rig.limits,
                answers=str(folder))  # fmt: skip
    thread = threading.Thread(target=lambda: ended.extend(each.progress for each in run_task(task).results))
    thread.start()
    try:
        eventually(lambda: found or found.__iadd__(take(folder)), 30)
        assert [(each.destination, each.outcome) for each in found] == [("small", Outcome.APPLIED)]
        assert rig.rows("small") == rig.expected("small")
    finally:
        released.set()
        thread.join()
    assert [each.destination for each in ended] == ["large", "small"], "the end tells everything"
    assert found == [ended[1]]


@pytest.mark.usefixtures("spark_starts_quickly")
@ON_SQLITE
@pytest.mark.timeout(600)
def test_so_is_one_on_spark(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = two_tenants(make_rig, LARGE)
    spark = Spark(master="local[1]", conf={"spark.local.dir": str(tmp_path)})
    source = Source(catalog="sqlite:nowhere", table="t")
    config = Config(path=tmp_path, pipeline="p", source=source, routing=Routing(field="tenant"), spark=spark,
                    state_dir=tmp_path)  # fmt: skip
    context = session(config, "early", daemon=DAEMON)
    jobs = SparkJobs(context, SourceTable(rig.source, "main", "t", rig.routing), rig.limits, "")
    heard: list[str] = []
    job = Job("p", ItemKind.SEED, tuple(rig.target(name, ItemKind.SEED) for name in rig.destinations))
    (done,) = jobs.run(job, Lane.SEEDS, lambda said: heard.extend(each.destination for each in said))
    context.stop()
    assert {each.progress.outcome for each in done.results} == {Outcome.APPLIED}
    assert heard[:1] == ["small"]
    counts = rig.look("large", "SELECT count(*), count(DISTINCT id) FROM dst.main.t")
    assert counts == [(LARGE, LARGE)]
