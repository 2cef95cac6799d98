"""One pipeline's part of an applier: its consumer, its lanes, and what it has in hand.

Every pipeline has a thread and a consumer group of its own: one whose source hangs, and whose items pile up, holds up
nobody else's. What they share is the Spark session and the way to the broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from pyspark import SparkContext

from services.applier.directory import Directory
from services.applier.group import Lane, lane_of
from services.applier.jobs import Jobs
from services.applier.lane import LaneThread, Waiting, repeats
from services.applier.measure import Measure, OpenLakes
from services.applier.offsets import OffsetLedger
from services.applier.outbox import Outbox
from services.applier.task import Limits, SourceTable
from shared.config.catalogs import ResolvedLake
from shared.config.copies import is_copy
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from shared.kafka.work_consumer import Partition, WorkConsumer
from shared.messages import Destination, UnreadableMessage, WorkItem
from shared.metrics import Metrics

log = structlog.get_logger(__name__)

POLL_S = 0.1
MAX_WAITING = 5_000
"""Items in hand beyond which the consumer is paused."""

FINISH_WITHIN_S = 20.0
FIXED = ("source", "routing")
"""Sections that jobs in hand were begun with."""


@dataclass(frozen=True)
class Camp:
    """What the crews of an applier share.

    ``pipelines`` counts them; ``unreadable`` hears of a record of the work topic that is no item.
    """

    name: str
    settings: KafkaSettings
    topics: Topics
    publisher: Publisher
    directory: Directory
    context: SparkContext
    limits: Limits
    pipelines: Callable[[], int]
    most_tasks: int
    open_lakes: OpenLakes
    unreadable: Callable[[str, Record, str], None]
    broken: Callable[[Exception], None]


class Crew(threading.Thread):
    """``stop`` lets what is in hand end; then the thread does."""

    def __init__(self, config: Config, camp: Camp, metrics: Metrics) -> None:
        super().__init__(name=f"crew {config.pipeline}", daemon=True)
        self.pipeline, self._metrics = config.pipeline, metrics
        self.problem: str | None = "starting"
        self._config, self._lakes_of, self._camp = config, Lakes(config), camp
        self._ledger, self._outbox = OffsetLedger(), Outbox(camp.publisher, camp.topics.progress)
        self._stopping = threading.Event()
        self._paused: frozenset[Partition] = frozenset()
        self._consumer: WorkConsumer | None = None
        self._jobs = Jobs(camp.context, source_of(config), camp.limits, camp.name, camp.pipelines, camp.most_tasks)
        self._lanes = self._hired()

    def take(self, config: Config) -> bool:
        """Go on with a file that changed: a destination that came into it may have its secrets there.

        Whether it can: what came over REST and reads another source needs another crew. For a file's that is a restart.
        """
        changed = [name for name in FIXED if getattr(config, name) != getattr(self._config, name)]
        if changed and (is_copy(config) or is_copy(self._config)):
            return False
        if changed:
            log.error("the file is not taken over: restart for these sections", changed=changed,
                      pipeline=self.pipeline)  # fmt: skip
        else:
            self._config, self._lakes_of = config, Lakes(config)
        return True

    def stop(self) -> None:
        self._stopping.set()

    def renew(self) -> None:
        if self._consumer is not None:
            self._consumer.renew()

    def warm(self) -> int:
        """Build every Spark worker. Returns how many jobs' tasks run side by side."""
        self._jobs.warm()
        return self._jobs.parallelism

    def run(self) -> None:
        try:
            for lane in self._lanes.values():
                lane.start()
            self._consume()
        except Exception as error:  # the process can't go on without it: let it be restarted
            log.exception("consuming ended", pipeline=self.pipeline)
            self._camp.broken(error)

    def _hired(self) -> Mapping[Lane, LaneThread]:
        camp = self._camp
        measure = Measure(self._metrics, camp.open_lakes)
        return {
            lane: LaneThread(
                lane, self._jobs, camp.directory, self._resolve, self._outbox, measure, camp.name, camp.broken
            )
            for lane in Lane
        }

    def _consume(self) -> None:
        camp, pipeline = self._camp, self.pipeline
        consumer = self._consumer = WorkConsumer(
            camp.settings,
            f"viaduck-applier-{camp.name}-{pipeline}",
            f"{camp.settings.prefix}.appliers.{pipeline}",
            [camp.topics.work],
            on_revoke=lambda gone: self._ledger.forget((p.topic, p.number) for p in gone),
        )
        try:
            while not self._stopping.is_set():
                self._receive(consumer.poll(POLL_S))
                self._commit(consumer)
                self._hold_back(consumer)
                self.problem = consumer.problem
            self._finish(consumer)
        finally:
            consumer.close(self._committable())

    def _receive(self, records: list[Record]) -> None:
        arrived: dict[Lane, list[Waiting]] = {}
        for record in records:
            self._ledger.received((record.topic, record.partition), record.offset)
            place = (Partition(record.topic, record.partition), record.offset)
            item = self._parse(record)
            if item is None or item.pipeline != self.pipeline:
                self._outbox.finish(place)
            else:
                arrived.setdefault(lane_of(item), []).append(Waiting(item, place, time.monotonic()))
        self._merge(arrived.get(Lane.RETRIES, []))
        for lane, waiting in arrived.items():
            self._lanes[lane].offer(waiting)

    def _merge(self, retries: list[Waiting]) -> None:
        """Take out of ``retries`` what repeats items that some lane has in hand."""
        again: dict[str, Waiting] = {}
        for waiting in list(retries):
            earlier = again.get(waiting.item.key)
            if earlier is not None and repeats(waiting.item, earlier.item):
                retries.remove(earlier)
                self._outbox.finish(earlier.place)
            again[waiting.item.key] = waiting
        for lane in self._lanes.values() if again else ():
            for key, replaced in lane.merge(again).items():
                retries.remove(again.pop(key))
                for old in replaced:
                    self._outbox.finish(old.place)

    def _parse(self, record: Record) -> WorkItem | None:
        try:
            return WorkItem.from_bytes(record.value or b"")
        except UnreadableMessage as error:
            self._camp.unreadable(self.pipeline, record, str(error))
            return None

    def _commit(self, consumer: WorkConsumer) -> None:
        self._outbox.resend()
        offsets = self._committable()
        if offsets:
            consumer.commit(offsets)

    def _committable(self) -> Mapping[Partition, int]:
        for partition, offset in self._outbox.delivered():
            self._ledger.done((partition.topic, partition.number), offset)
        return {Partition(*partition): offset for partition, offset in self._ledger.committable().items()}

    def _hold_back(self, consumer: WorkConsumer) -> None:
        """Fetch no more than what can be worked off; polling goes on, or the group would think us dead."""
        if self._ledger.in_hand >= MAX_WAITING and consumer.assigned != self._paused:
            self._paused = consumer.assigned
            consumer.pause(self._paused)
        elif self._paused and self._ledger.in_hand < MAX_WAITING // 2:
            consumer.resume(self._paused)
            self._paused = frozenset()

    def _finish(self, consumer: WorkConsumer) -> None:
        """Let the jobs in hand end, publish what they did, and go on polling meanwhile."""
        for lane in self._lanes.values():
            lane.stop()
        deadline = time.monotonic() + FINISH_WITHIN_S
        while any(lane.is_alive() for lane in self._lanes.values()) and time.monotonic() < deadline:
            consumer.poll(POLL_S)  # what arrives now is not ours any more: it is not committed, so it is read again
            self._commit(consumer)
        self._camp.publisher.flush(2.0)

    def _resolve(self, destination: Destination) -> ResolvedLake:
        return self._lakes_of.published(destination)


def source_of(config: Config) -> SourceTable:
    source = config.source
    return SourceTable(Lakes(config).source(), source.schema_name, source.table, config.routing)
