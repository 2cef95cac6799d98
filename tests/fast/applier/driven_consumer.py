"""A consumer that is driven by hand: no threads, no broker, no Spark; lakes are cursors that count looks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from services.applier.apply.cursor.decide import Cursor, Decision, decide
from services.applier.destination_cache import DestinationCache
from services.applier.model.grouping import Lane
from services.applier.model.immediate_answers import answer
from services.applier.model.task import Target
from services.applier.pipeline_consumer import PipelineConsumer
from shared.config.deployment import load_all
from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from shared.contracts.reports import UnroutedRecords, parse_progress
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.work_consumer import PartitionId
from shared.runtime.metrics import Metrics
from tests.fast.applier.consumers import camp, item, wanted
from tests.fast.shared.config.test_deployment import write

PIPELINE = "fine"
OUTCOMES = {Decision.ALREADY_APPLIED: Outcome.ALREADY_APPLIED, Decision.GAP: Outcome.GAP,
            Decision.FENCED: Outcome.FENCED, Decision.APPLY: Outcome.APPLIED}  # fmt: skip


@dataclass
class Lakes:
    """Cursors by destination; ``broken`` ones fail. ``looks`` counts every item that reached a lake."""

    generation: int = 1
    cursors: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    looks: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By destination, and the position that its cursor then had."""
    runs: list[str] = field(default_factory=list)
    """Items that reached a lake, in order."""
    looked_first: list[str] = field(default_factory=list)
    """Those whose lake is asked before their source."""

    def __call__(self, target: Target) -> Progress:
        item, name = target.item, target.item.destination
        self.runs.append(item.item)
        self.looked_first += [item.item] * target.looks_first
        self.looks[name, self.cursors[name]] += 1
        if name in self.broken:
            return answer(item, Outcome.FAILED, "test")
        at = Cursor(self.generation, self.cursors[name], "lake", 1, "uuid", "v", "", 0)
        decided = decide(at, item)
        if decided is Decision.APPLY:
            self.cursors[name] = item.through
        told = {"position": self.cursors[name], "rows_applied": 7}
        return answer(item, OUTCOMES[decided], "test").model_copy(update=told)


@dataclass
class Sent:
    """What the consumer publishes, delivered at once."""

    answers: list[Progress] = field(default_factory=list)
    unrouted: list[UnroutedRecords] = field(default_factory=list)

    def send(
        self, topic: str, key: str, value: bytes | None, headers: Mapping[str, str] | None = None,
        on_delivery: Callable[[Exception | None], None] = lambda _: None,
    ) -> None:  # fmt: skip
        message = parse_progress(value or b"")
        if isinstance(message, UnroutedRecords):
            self.unrouted.append(message)
            return
        assert isinstance(message, Progress)
        self.answers.append(message)
        on_delivery(None)


class Replayed:
    """``sends`` items and works everything off; ``looks``, ``answers`` and ``in_hand`` tell what became of them."""

    def __init__(self, folder: Path, unrouted: tuple[UnroutedRecords, ...] = ()) -> None:
        """``unrouted``: what each task finds."""
        write(folder, f"{PIPELINE}.yaml")
        self.lakes, self.sent, self.directory = Lakes(), Sent(), DestinationCache()
        self.broken: list[Exception] = []
        shared = camp(
            "test", KafkaSettings("nowhere:9"), cast(Publisher, self.sent), self.directory, lambda _: 1_000,
            self.broken.append, lambda *_: None, self.lakes, unrouted,
        )  # fmt: skip
        (config,) = load_all([folder], {}).configs
        self.consumer = PipelineConsumer(config, shared, Metrics(PIPELINE))
        self._offsets = itertools.count()

    def wants(self, name: str, position: int, **changes: Any) -> None:
        """A destination with a cursor."""
        self.lakes.cursors[name] = position
        self.say(name, **changes)

    def say(self, name: str, **changes: Any) -> None:
        """What control says of a destination from now on."""
        record = wanted(PIPELINE, name)
        spec = parse(record).model_copy(update={"version": next(self._offsets) + 1, **changes})
        self.directory.put(Record(record.topic, 0, 0, spec.key, spec.to_bytes()))

    def sends(self, *items: WorkItem, partition: int = 0) -> None:
        self.consumer._receive(
            [Record("work", partition, next(self._offsets), each.key, each.to_bytes()) for each in items]
        )

    def works_off(self) -> None:
        """Until nothing waits in any lane; the lanes take turns."""
        while any(lane._waiting for lane in self.consumer._lanes.values()):
            for lane in self.consumer._lanes.values():
                self.turn(lane._lane)
        self.consumer._committable()

    def turn(self, lane: Lane) -> None:
        """One job of a lane, if something waits there."""
        thread = self.consumer._lanes[lane]
        batch = thread._bite()
        if batch:
            thread._do(batch)

    def loses(self, *partitions: int) -> None:
        self.consumer._lose(frozenset(PartitionId("work", number) for number in partitions))

    @property
    def in_hand(self) -> int:
        return self.consumer._ledger.in_hand

    def outcomes(self) -> dict[str, list[Outcome]]:
        """By item."""
        found: dict[str, list[Outcome]] = {}
        for each in self.sent.answers:
            found.setdefault(each.item, []).append(each.outcome)
        return found


def parse(record: Record) -> Any:
    from shared.contracts.messages import Destination

    return Destination.from_bytes(record.value or b"")


def changes(name: str, expected: int, through: int, **fields: Any) -> WorkItem:
    said = {"item": f"{name} {expected}-{through}", "expected": expected, "after": expected, **fields}
    return item(PIPELINE, name, through, **said)


def probe(name: str, number: int, **fields: Any) -> WorkItem:
    return item(PIPELINE, name, 0, item=f"{name} probe {number}", kind=ItemKind.PROBE, **fields)
