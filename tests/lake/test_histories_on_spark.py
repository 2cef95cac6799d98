"""The same histories through real Spark jobs: every answer is the one that the functions give by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given

from services.applier.model.grouping import Job, lane_of
from services.applier.model.task import Task, TaskResult
from services.applier.spark_jobs import DAEMON, SparkJobs
from shared.config.model import Config, Routing, Source, Spark
from shared.runtime.spark import session
from tests.world.play import play
from tests.world.replay import SEEDS, again, histories, parts, seed_of
from tests.world.service_view import Run


@pytest.fixture(scope="module")
def on_spark(tmp_path_factory: pytest.TempPathFactory, spark_starts_quickly: None) -> Iterator[Run]:
    """Does a task as a job of its own, split over two Python workers."""
    folder = tmp_path_factory.mktemp("spark")
    context = session(_config(folder), "histories", daemon=DAEMON)

    def run(task: Task) -> TaskResult:
        jobs = SparkJobs(context, task.source, task.limits, task.applier)
        job = Job(task.targets[0].item.pipeline, task.kind, task.targets)
        done = jobs.run(job, lane_of(task.targets[0].item))
        by_item = {result.progress.item: result for part in done for result in part.results}
        return TaskResult(tuple(by_item[target.item.item] for target in task.targets), done[0].report)

    yield run
    context.stop()


def _config(folder: Path) -> Config:
    """As much of a configuration as a Spark session looks at."""
    source = Source(catalog="sqlite:nowhere", table="t")
    spark = Spark(master="local[2]", conf={"spark.local.dir": str(folder)})
    return Config(path=folder, pipeline="p", source=source, routing=Routing(field="r"), spark=spark, state_dir=folder)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(2))
@histories(2, soak=20)
@given(drawn=SEEDS)
def test_spark_answers_as_the_functions_do(
    world: duckdb.DuckDBPyConnection, on_spark: Run, part: int, drawn: int
) -> None:
    seed = seed_of(part, drawn)
    there, here = play(world, seed, on_spark), play(world, seed)
    assert not there.wrong, f"{there}\n{again(seed, 'tests/lake/test_histories_on_spark.py')}"
    assert there.log == here.log
