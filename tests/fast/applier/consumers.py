"""Consumers without Spark and without lakes: what they consume, hand over and answer is real, the applies are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark import SparkContext

from services.applier.destination_cache import DestinationCache
from services.applier.metrics_recorder import OpenLakes
from services.applier.model.immediate_answers import answer
from services.applier.model.task import Limits, Tally, Target, TargetResult, Task, TaskResult, WorkerReport
from services.applier.pipeline_consumer import ApplierContext
from services.applier.worker.task_claim import Choice, claim
from shared.contracts.messages import (
    DesiredState,
    Destination,
    ItemKind,
    LakeRef,
    Outcome,
    Progress,
    SeedMode,
    WorkItem,
)
from shared.contracts.reports import UnroutedRecords
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics

MOST_TASKS = 2


def nothing_changed(target: Target) -> Progress:
    """The answer of a source that holds nothing for the target."""
    return answer(target.item, Outcome.EMPTY, "test").model_copy(update={"through": target.item.through})


@dataclass(frozen=True)
class Spark:
    """A Spark context whose tasks are done, all in the caller's thread, as soon as ``on_task`` has returned.

    That says how many of the task's targets had their turn; ``lakes`` say what became of each.
    """

    on_task: Callable[[Task], int]
    lakes: Callable[[Target], Progress] = nothing_changed
    values: Sequence[object] = ()
    defaultParallelism: int = MOST_TASKS  # noqa: N815 - as PySpark calls it
    master: str = "local[*]"
    unrouted: tuple[UnroutedRecords, ...] = ()
    """What each task found."""

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - the same
        """Pools are the real one's business."""

    def parallelize(self, values: Sequence[object], _: int) -> Spark:
        return replace(self, values=values)

    def mapPartitions(self, _: Callable[..., Any]) -> Spark:  # noqa: N802 - the same
        return self

    def collect(self) -> list[object]:
        return [self._done(value) for value in self.values]

    def _done(self, value: object) -> object:
        if not isinstance(value, Choice):
            return 1
        task = claim(value, lambda _: 0)
        done = task.targets[: self.on_task(task)]
        results = tuple(TargetResult(self.lakes(target)) for target in done)
        report = WorkerReport(pid=1, open_lakes=3, tally=Tally(read_seconds=1.5))
        return TaskResult(results, report, unrouted=self.unrouted)


def camp(
    name: str,
    settings: KafkaSettings,
    publisher: Publisher,
    directory: DestinationCache,
    on_task: Callable[[Task], int],
    broken: Callable[[Exception], None],
    unreadable: Callable[[str, Record, str], None],
    lakes: Callable[[Target], Progress] = nothing_changed,
    unrouted: tuple[UnroutedRecords, ...] = (),
) -> ApplierContext:
    return ApplierContext(
        name=name, settings=settings, topics=Topics(settings.prefix), publisher=publisher, directory=directory,
        spark=cast(SparkContext, Spark(on_task, lakes, unrouted=unrouted)), limits=Limits(), pipelines=lambda: 2,
        configs=tuple, most_tasks=MOST_TASKS,
        open_lakes=OpenLakes(local=False), broken=broken, unreadable=unreadable,
    )  # fmt: skip


def wanted(pipeline: str, destination: str) -> Record:
    """A destination's desired state, as its topic tells it."""
    spec = Destination(
        pipeline=pipeline, destination=destination, generation=1, routing_value="v", revision="r",
        state=DesiredState.RUNNING, lake=LakeRef(catalog="sqlite:/d.sqlite"), table="t", seed_mode=SeedMode.SCAN,
    )  # fmt: skip
    return Record("destinations", 0, 0, spec.key, spec.to_bytes())


def item(pipeline: str, destination: str, number: int = 0, **fields: Any) -> WorkItem:
    usual = {"item": f"{pipeline}-{destination}-{number}", "kind": ItemKind.CHANGES, "generation": 1}
    return WorkItem(pipeline=pipeline, destination=destination, through=number, **{**usual, **fields})  # fmt: skip
