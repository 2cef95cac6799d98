"""One pipeline's part of an applier: its consumer, its lanes, and its items in work.

Every pipeline has its own thread and consumer group: a pipeline whose source hangs, and whose items pile up, delays no
other. They share the Spark session and the connection to the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from pyspark import SparkContext

from services.applier.backlog import WaitingItem, repeats
from services.applier.destination_cache import DestinationCache
from services.applier.known_positions import KnownPositions
from services.applier.lane import LaneContext, LaneThread
from services.applier.metrics_recorder import MetricsRecorder, OpenLakes
from services.applier.model.file_agreement import Agreement
from services.applier.model.grouping import Lane, lane_of
from services.applier.model.health_plan import TableWanted, is_ours
from services.applier.model.offsets import OffsetLedger
from services.applier.model.task import Limits, Source, SourceTable
from services.applier.model.topic import topic_of
from services.applier.model.upkeep_exclusion import UpkeepExclusion
from services.applier.outbox import Outbox
from services.applier.screening import Screen
from services.applier.spark_jobs import SparkJobs
from services.applier.upkeep_planner import UpkeepPlanner
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import UnreadableMessage, ViaduckError
from shared.contracts.messages import Destination, WorkItem
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure_rejected
from shared.kafka.work_consumer import PartitionId, WorkConsumer
from shared.runtime.background import TURNS_WITHIN_S, Background, Threaded, Work
from shared.runtime.metrics import Metrics

log = structlog.get_logger(__name__)

POLL_S = 0.1
MAX_WAITING = 5_000
"""Items in hand beyond which the consumer is paused."""

FINISH_WITHIN_S = 20.0
LONG_READ_S = 1_800.0
"""No bite of changes takes so long to read."""

FIXED = ("source", "topic", "flush", "routing")
"""Sections that jobs in hand were begun with."""


@dataclass(frozen=True)
class ApplierContext:
    """What the pipelines of an applier share.

    ``pipelines`` counts them, ``configs`` are theirs. ``unreadable`` gets each record of the work topic that is no
    item.
    """

    name: str
    settings: KafkaSettings
    topics: Topics
    publisher: Publisher
    directory: DestinationCache
    spark: SparkContext
    limits: Limits
    pipelines: Callable[[], int]
    configs: Callable[[], Collection[Config]]
    most_tasks: int
    open_lakes: OpenLakes
    unreadable: Callable[[str, Record, str], None]
    broken: Callable[[Exception], None]


class PipelineConsumer(Threaded):
    """``stop`` lets what is in hand end; then the thread does."""

    def __init__(self, config: Config, context: ApplierContext, metrics: Metrics) -> None:
        self.pipeline = config.pipeline
        self._metrics = metrics
        self.problem: str | None = "starting"
        self._config = config
        self._context = context
        self._lakes_of = Lakes(config)
        self._agreement = Agreement(config)
        self._upkeep = UpkeepPlanner(lambda: self._config, context.configs, context.directory.all)
        self._exclusion = UpkeepExclusion()
        self._ledger = OffsetLedger()
        self._known = KnownPositions()
        self._outbox = Outbox(context.publisher, context.topics.progress, self._known.delivered)
        self._measure = MetricsRecorder(metrics, context.open_lakes, lambda key: context.directory.get(key) is not None)
        self._screen = Screen(context.directory, self._known, self._outbox, self._measure, context.name)
        self._loop = Background(f"consumer {config.pipeline}", self._consume, on_error=context.broken)
        self._paused: frozenset[PartitionId] = frozenset()
        self._share: frozenset[int] = frozenset()
        """Partitions that are this member's, for other threads."""
        self.is_busy = False
        """Whether there are items in hand."""
        self._consumer: WorkConsumer | None = None
        self._jobs = SparkJobs(
            context.spark,
            source_of(config, context.settings),
            context.limits,
            context.name,
            context.pipelines,
            context.most_tasks,
            lambda: context.directory.routed(config.pipeline),
        )
        self._lanes = self._hired()

    def take(self, config: Config) -> bool:
        """Go on with a file that changed: a destination that came into it may have its secrets there.

        False if it cannot: a pipeline from REST with another source needs another consumer, one of a file a restart.
        """
        changed = [name for name in FIXED if getattr(config, name) != getattr(self._config, name)]
        if changed and (config.over_rest or self._config.over_rest):
            return False
        if changed:
            log.error("file_needs_restart", changed=changed,
                      pipeline=self.pipeline)  # fmt: skip
        else:
            self._config, self._lakes_of, self._agreement = config, Lakes(config), Agreement(config)
            self._upkeep.forget()
            self._known.forget()  # what a file says of a lake may lead to another one now
        return True

    @property
    def is_alive(self) -> bool:
        return self._loop.is_alive

    def renew(self) -> None:
        """Start over on a broker that was wiped. Raises ``DependencyError`` where it does not answer."""
        self._make_rejected()
        if self._consumer is not None:
            self._consumer.renew()

    def warm(self) -> int:
        """Build every Spark worker. Returns how many jobs' tasks run side by side."""
        self._jobs.warm()
        return self._jobs.parallelism

    def _hired(self) -> Mapping[Lane, LaneThread]:
        context = LaneContext(
            self._jobs,
            self._context.directory,
            self._resolve,
            self._upkeep.plan,
            self._exclusion,
            self._known,
            self._screen,
            self._outbox,
            self._measure,
            self._context.name,
        )
        return {lane: LaneThread(lane, context, self._loop_of(lane)) for lane in Lane}

    def _loop_of(self, lane: Lane) -> Callable[[Work], Background]:
        """The process can't go on without one of its lanes."""
        name, within_s = f"lane {lane} of {self.pipeline}", longest_job_s(lane, self._context.limits)
        return lambda work: Background(name, work, on_error=self._context.broken, turns_within_s=within_s)

    def _consume(self, loop: Background) -> None:
        context, pipeline = self._context, self.pipeline
        consumer = self._consumer = WorkConsumer(
            context.settings,
            f"viaduck-applier-{context.name}-{pipeline}",
            f"{context.settings.prefix}.appliers.{pipeline}",
            [context.topics.work],
            on_revoke=self._lose,
        )
        try:
            self._make_rejected()
            for lane in self._lanes.values():
                lane.start()
            while not loop.stopped.is_set():
                loop.turned()
                self._receive(consumer.poll(POLL_S))
                self._commit(consumer)
                self._hold_back(consumer)
                self._share = frozenset(partition.number for partition in consumer.assigned)
                self.is_busy = self._ledger.in_hand > 0
                self.problem = consumer.problem
            self._finish(consumer)
        finally:
            consumer.close(self._committable())

    def _make_rejected(self) -> None:
        """The topic of records of which no row can be made, where the pipeline lands a topic."""
        if self._config.topic is not None:
            ensure_rejected(self._context.settings, self.pipeline)

    def _lose(self, gone: frozenset[PartitionId]) -> None:
        """Other appliers serve these partitions now, and move cursors without a message to this one."""
        self._ledger.forget((partition.topic, partition.number) for partition in gone)
        self._known.forget(gone)

    def _receive(self, records: list[Record]) -> None:
        """Sort what came into the lanes, without what needs none: a backlog of repeated items is gone at once."""
        arrived: dict[Lane, list[WaitingItem]] = {}
        for record in records:
            self._ledger.received((record.topic, record.partition), record.offset)
            place = (PartitionId(record.topic, record.partition), record.offset)
            item = self._parse(record)
            if item is None or item.pipeline != self.pipeline:
                self._outbox.finish(place)
                continue
            verdict = self._screen.judge(item, 0.0)
            if verdict.is_final:
                self._screen.finish(item, place, verdict)
            else:
                arrived.setdefault(self._lane_of(item), []).append(WaitingItem(item, place, time.monotonic()))
        self._merge(arrived.get(Lane.RETRIES, []))
        for lane, waiting in arrived.items():
            self._lanes[lane].offer(waiting)

    def _lane_of(self, item: WorkItem) -> Lane:
        """A first try for a destination in trouble is a repeated item: its reader counts the tries."""
        lane = lane_of(item)
        return Lane.RETRIES if lane is Lane.CHANGES and self._known.is_failing(item) else lane

    def _merge(self, retries: list[WaitingItem]) -> None:
        """Take out of ``retries`` what repeats items that some lane has in hand."""
        again: dict[str, WaitingItem] = {}
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
            self._context.unreadable(self.pipeline, record, str(error))
            return None

    def _commit(self, consumer: WorkConsumer) -> None:
        self._outbox.resend()
        offsets = self._committable()
        if offsets:
            consumer.commit(offsets)

    def _committable(self) -> Mapping[PartitionId, int]:
        for partition, offset in self._outbox.delivered():
            self._ledger.done((partition.topic, partition.number), offset)
        return {PartitionId(*partition): offset for partition, offset in self._ledger.committable().items()}

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
        while any(lane.is_alive for lane in self._lanes.values()) and time.monotonic() < deadline:
            consumer.poll(POLL_S)  # what arrives now is not ours any more: it is not committed, so it is read again
            self._commit(consumer)
        self._context.publisher.flush(2.0)

    def tables(self) -> Iterator[tuple[TableWanted, ResolvedLake | ViaduckError]]:
        """The tables whose health is this member's to tell, each with its lake or with why that can't be opened."""
        context, source = self._context, self._config.source
        partitions = context.publisher.partitions(context.topics.work) or context.settings.partitions
        own = TableWanted(self.pipeline, None, None, source.schema_name, source.table)
        if self._config.topic is None and is_ours(own.key, self._share, partitions):
            yield own, self._or_error(self._lakes_of.source)
        for each in context.directory.of(self.pipeline):
            if is_ours(each.key, self._share, partitions) and not each.drop:
                wanted = TableWanted(self.pipeline, each.destination, each.generation, each.schema_name, each.table)
                yield wanted, self._or_error(partial(self._resolve, each))

    def _or_error(self, resolve: Callable[[], ResolvedLake]) -> ResolvedLake | ViaduckError:
        try:
            return resolve()
        except ViaduckError as error:
            return error

    def _resolve(self, destination: Destination) -> ResolvedLake:
        self._agreement.require(destination)
        return self._lakes_of.published(destination)


def longest_job_s(lane: Lane, limits: Limits) -> float:
    """A task reads its source, and begins no more applies after as long as that took; each has a deadline."""
    longest_s = limits.deadline_s if lane is Lane.CHANGES else max(limits.deadline_s, limits.seed_deadline_s)
    return max(3 * longest_s, LONG_READ_S) + TURNS_WITHIN_S


def source_of(config: Config, own: KafkaSettings) -> Source:
    """``own``: the deployment's broker."""
    if config.topic is not None:
        return topic_of(config, config.topic, own)
    source = config.source
    return SourceTable(Lakes(config).source(), source.schema_name, source.table, config.routing)
