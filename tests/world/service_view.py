"""Source and destinations as the services see them: messages, lakes and tables for what the world knows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.applier.model.task import Limits, SourceTable, Target, Task, TaskResult, UpkeepTask
from services.applier.worker import worker_state
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.config.upkeep_rules import Policy
from shared.contracts.messages import DesiredState, ItemKind, LakeRef, Progress, SeedMode, WorkItem
from shared.contracts.messages import Destination as Desired
from shared.contracts.ranges import NOT_SEEDED
from tests.world.destination import Destination, Promise
from tests.world.holdings import Holdings
from tests.world.lake import Lake
from tests.world.referee import Seen
from tests.world.shape import Shape
from tests.world.truth import Truth

Run = Callable[[Task], TaskResult]

PIPELINE = "events"
LIMITS = Limits(max_open_lakes=5, stall_s=600.0)
"""Few lakes, so that they come and go; and all the patience that a busy machine asks for."""

EAGER = Policy(expire_after_s=1.0, clean_after_s=1.0, keep_snapshots=2, orphans_after_s=1.0, whole_lake=True)


@dataclass
class Receiver:
    """One destination: what is wanted of it, what its cursor holds, and what is believed that it holds."""

    desired: Desired
    lake: ResolvedLake
    promised: Destination
    holdings: Holdings
    cursor: Seen = field(default_factory=Seen)
    believed: Seen = field(default_factory=Seen)
    altered: bool = False
    """Its owner has altered its table so that rows have lost values, and no change or seed has come since."""
    held_up: bool = False
    """Parked for a row that can't be carried, when it was heard of last."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def generation(self) -> int:
        return self.desired.generation

    def begin_again(self, *, replace: bool) -> None:
        """The next life: control's reseed, with ``replace``, or a destination that was taken away and is back."""
        self.desired = self.desired.model_copy(update={"generation": self.generation + 1, "replace": replace})

    def item(self, kind: ItemKind, through: int, **fields: Any) -> WorkItem:
        """A work item for this destination, from ``expected`` (else before everything) to ``through``."""
        expected = fields.get("expected", NOT_SEEDED)
        given = {"after": expected, "generation": self.generation} | fields
        return WorkItem(
            item=f"{self.desired.destination}#{next(self.numbers)}",
            kind=kind,
            pipeline=self.desired.pipeline,
            destination=self.desired.destination,
            through=through,
            **given,
        )


def run_here(task: Task) -> TaskResult:
    """The applier's function in this process, without Spark."""
    return run_task(task)


def forget_lakes() -> None:
    """Let go of what the applier has attached in this process, before its files go."""
    worker_state.worker(LIMITS).pool.close()


def send(
    source: SourceTable, sent: Sequence[tuple[Receiver, WorkItem]], run: Run = run_here, limits: Limits = LIMITS
) -> list[Progress]:
    """Do items, all of one kind and each of another destination, as one task; returns the answers in their order.

    A source that was flushed since the applier attached it fails once, and is attached anew (#1413): then once more.
    """
    answers = _send(source, sent, run, limits)
    stale = [number for number, answer in enumerate(answers) if _is_stale(answer)]
    if stale:
        again = _send(source, [sent[number] for number in stale], run, limits)
        for number, answer in zip(stale, again, strict=True):
            answers[number] = answer
    return answers


def _send(source: SourceTable, sent: Sequence[tuple[Receiver, WorkItem]], run: Run, limits: Limits) -> list[Progress]:
    targets = tuple(Target(item, each.desired, each.lake, upkeep=_upkeep(item)) for each, item in sent)
    return [result.progress for result in run(Task(sent[0][1].kind, source, targets, limits)).results]


def _upkeep(item: WorkItem) -> UpkeepTask:
    """What an ordered upkeep may do: all that the lake holds is meant, and ages are the least that there are."""
    steps = None if item.upkeep is None else item.upkeep.steps
    return UpkeepTask() if steps is None else UpkeepTask(steps=steps, policy=EAGER)


def _is_stale(answer: Progress) -> bool:
    error = answer.error
    return error is not None and error.retryable and "ducklake_inlined_" in error.message


def source_table(lake: Lake, shape: Shape) -> SourceTable:
    keys = () if shape.append_only else shape.keys
    return SourceTable(resolved(lake), shape.schema, shape.table, Routing(field=shape.routing, key_columns=keys))


def receiver(
    folder: Path,
    truth: Truth,
    shape: Shape,
    id: str,
    value: str,
    *,
    mode: SeedMode = SeedMode.SCAN,
    table: str = "",
    lake: Lake | None = None,
) -> Receiver:
    """A destination that is still to be made, with its lake in ``folder`` unless it has one."""
    promised = Destination(
        lake=lake or Lake.in_folder(folder),
        table=table or shape.table,
        pipeline=PIPELINE,
        id=id,
        value=value,
        schema=shape.schema,
        promise=promise(shape, mode),
        keys=shape.keys,
    )
    return Receiver(desired(promised, mode), resolved(promised.lake), promised, Holdings(promised, truth))


def promise(shape: Shape, mode: SeedMode) -> Promise:
    if shape.append_only:
        return Promise.APPEND_ONLY
    return Promise.LATEST if mode is SeedMode.LATEST else Promise.SLICE


def desired(destination: Destination, mode: SeedMode) -> Desired:
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
