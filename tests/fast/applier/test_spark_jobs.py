"""What the tasks of a job are told beside their targets."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from pyspark import SparkContext

from services.applier.model.grouping import Job, Lane
from services.applier.model.task import Limits, Source, SourceTable, Task
from services.applier.spark_jobs import SparkJobs
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.messages import ItemKind
from tests.fast.applier.consumers import Spark
from tests.fast.applier.worker.test_topic_reader import SOURCE, target

TABLE = SourceTable(ResolvedLake("sqlite:s"), "main", "t", Routing(field="tenant"))


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        (SOURCE, ItemKind.CHANGES, {"a", "z"}),
        (SOURCE, ItemKind.PROBE, set()),
        (replace(SOURCE, routing=None), ItemKind.CHANGES, set()),
        (TABLE, ItemKind.CHANGES, set()),
    ],
)
def test_those_who_sort_records_know_the_routing_values_of_all_destinations(
    source: Source, kind: ItemKind, told: set[str]
) -> None:
    tasks = list[Task]()

    def take(task: Task) -> int:
        tasks.append(task)
        return 1_000

    spark = cast(SparkContext, Spark(take))
    jobs = SparkJobs(spark, source, Limits(), "applier", routed=lambda: frozenset({"a", "z"}))
    jobs.run(Job("p", kind, (target("a"),)), Lane.CHANGES)
    assert [set(task.routed) for task in tasks] == [told]
