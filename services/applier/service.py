"""The applier: a Kafka consumer and a Spark driver.

One thread owns the consumer and never waits for Spark; lanes run jobs on threads of their own and hand their outcomes
back. An item's offset is committed after its progress has been delivered, so a crash at any point only means that the
item is read again, and the fence makes that harmless.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping

import structlog

from services.applier.directory import Directory
from services.applier.group import Lane, lane_of
from services.applier.jobs import Jobs
from services.applier.lane import LaneThread, Waiting
from services.applier.measure import Measure
from services.applier.offsets import OffsetLedger
from services.applier.outbox import Outbox
from services.applier.task import Limits, SourceTable
from shared.config.catalogs import ResolvedLake, resolve
from shared.config.loading import lake_of, load
from shared.config.model import Config
from shared.errors import ConfigError
from shared.http import ServiceServer, own_port
from shared.kafka.dead_letter import dead_letter
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.kafka.work_consumer import Partition, WorkConsumer
from shared.messages import Destination, UnreadableMessage, WorkItem
from shared.metrics import Metrics
from shared.spark import is_local, session

log = structlog.get_logger(__name__)

POLL_S = 0.1
MAX_WAITING = 5_000
"""Items in hand beyond which the consumer is paused."""

FINISH_WITHIN_S = 20.0


def main(config: Config) -> int:
    """Run an applier until it is told to stop. Returns the exit code."""
    return Service(config).run()


class StoppedEarlyError(Exception):
    """Told to end while Spark was starting."""


class Service:
    """Wires the applier's parts together for one pipeline."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._name = f"{config.instance.id}-{socket.gethostname()}-{os.getpid()}"
        self._settings = KafkaSettings.from_config(config)
        self._topics = Topics(self._settings.prefix)
        self._metrics = Metrics(config.pipeline)
        self._directory = Directory()
        self._ledger = OffsetLedger()
        self._stopping = threading.Event()
        self._broken: Exception | None = None
        self._spark_ready = False
        self._problem: str | None = "starting"
        self._paused: frozenset[Partition] = frozenset()
        self._consumer: WorkConsumer | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGHUP, lambda *_: self._reload())
        port = own_port(self._config.applier.port)
        server = ServiceServer(self._config.server.host, port, self._metrics, self._readiness)
        server.start()
        try:
            self._run()
        except StoppedEarlyError:
            log.info("stopped before Spark was ready")
        finally:
            server.stop()
        return 1 if self._broken is not None else 0

    def _stop(self) -> None:
        """Called by a signal, on the main thread: what waits for Spark to start has nothing to finish."""
        self._stopping.set()
        if not self._spark_ready:
            raise StoppedEarlyError

    def _reload(self) -> None:
        """A destination that came into the file may have its secrets there; all else of it needs a restart."""
        try:
            self._config = load(self._config.path)
        except ConfigError as error:
            log.warning("file not taken over", mistakes=error.mistakes)

    def _run(self) -> None:
        ensure(self._settings)
        client = f"viaduck-applier-{self._name}"
        self._publisher = Publisher(self._settings, client)
        self._outbox = Outbox(self._publisher, self._topics.progress)
        self._follower = Follower(self._settings, f"{client}-destinations", [self._topics.destinations])
        self._follower.start(self._followed)
        renewal = RenewalWatch(self._settings, f"{client}-renewal", self._renew)
        renewal.start()
        context = session(self._config, "viaduck-applier")
        try:
            if not self._stopping.is_set():
                self._work(Jobs(context, self._source(), self._limits(), self._name))
            context.stop()
        finally:
            renewal.stop()
            self._follower.stop()
            self._publisher.close()

    def _work(self, jobs: Jobs) -> None:
        jobs.warm()
        measure = Measure(self._metrics, local=is_local(self._config.spark.master))
        directory, outbox, name = self._directory, self._outbox, self._name
        self._lanes = {
            lane: LaneThread(lane, jobs, directory, self._resolve, outbox, measure, name, self._break) for lane in Lane
        }
        for lane in self._lanes.values():
            lane.start()
        self._spark_ready = True  # from here on an end is an orderly one
        log.info("applier ready", parallelism=jobs.parallelism, name=name)
        self._consume()

    # -- the consumer's thread ----------------------------------------------------------------------------------------

    def _consume(self) -> None:
        consumer = self._consumer = WorkConsumer(
            self._settings,
            f"viaduck-applier-{self._name}",
            f"{self._settings.prefix}.appliers.{self._config.pipeline}",
            [self._topics.work],
            on_revoke=lambda gone: self._ledger.forget((p.topic, p.number) for p in gone),
        )
        try:
            while not self._stopping.is_set():
                self._receive(consumer.poll(POLL_S))
                self._commit(consumer)
                self._hold_back(consumer)
                self._problem = consumer.problem
            self._finish(consumer)
        finally:
            consumer.close(self._committable())

    def _receive(self, records: list[Record]) -> None:
        arrived: dict[Lane, list[Waiting]] = {}
        for record in records:
            self._ledger.received((record.topic, record.partition), record.offset)
            place = (Partition(record.topic, record.partition), record.offset)
            item = self._parse(record)
            if item is None or item.pipeline != self._config.pipeline:
                self._outbox.finish(place)
            else:
                arrived.setdefault(lane_of(item), []).append(Waiting(item, place, time.monotonic()))
        for lane, waiting in arrived.items():
            self._lanes[lane].offer(waiting)

    def _parse(self, record: Record) -> WorkItem | None:
        try:
            return WorkItem.from_bytes(record.value or b"")
        except UnreadableMessage as error:
            self._dead_letter(record, str(error))
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
        self._publisher.flush(2.0)

    # -- what the parts ask of us -------------------------------------------------------------------------------------

    def _followed(self, record: Record) -> None:
        try:
            self._directory.put(record)
        except UnreadableMessage as error:
            self._dead_letter(record, str(error))

    def _renew(self) -> None:
        self._publisher.rebuild()
        self._follower.renew()
        if self._consumer is not None:
            self._consumer.renew()

    def _dead_letter(self, record: Record, reason: str) -> None:
        self._metrics.dead_letters_total.labels(topic=record.topic).inc()
        dead_letter(self._publisher, self._topics, record, reason, "applier")

    def _resolve(self, destination: Destination) -> ResolvedLake:
        return resolve(lake_of(self._config, destination), os.environ, self._config.path.parent)

    def _source(self) -> SourceTable:
        source = self._config.source
        lake = resolve(source.lake, os.environ, self._config.path.parent)
        return SourceTable(lake, source.schema_name, source.table, self._config.routing)

    def _limits(self) -> Limits:
        applier = self._config.applier
        return Limits(
            max_open_lakes=applier.max_open_lakes,
            threads=applier.threads_per_worker,
            deadline_s=applier.deadline_seconds,
            memory_limit=applier.memory_limit,
        )

    def _break(self, error: Exception) -> None:
        self._broken = error
        self._stopping.set()

    def _readiness(self) -> Mapping[str, str | None]:
        return {"broker": self._problem, "spark": None if self._spark_ready else "the Spark session is starting"}
