"""The applier: a Spark driver, and for each pipeline a consumer of its work items.

One thread owns a consumer and never waits for Spark; lanes run jobs on threads of their own and hand their outcomes
back. An item's offset is committed after its progress has been delivered, so a crash at any point only means that the
item is read again, and the fence makes that harmless.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping

import structlog
from pyspark import SparkContext

from services.applier.destination_cache import DestinationCache
from services.applier.health_sweep import HealthSweep
from services.applier.metrics_recorder import OpenLakes
from services.applier.model.task import Limits
from services.applier.pipeline_consumer import FINISH_WITHIN_S, ApplierContext, PipelineConsumer
from services.applier.spark_jobs import DAEMON
from shared.config.deployment import LOOK_AGAIN_S, Deployment
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, UnreadableMessage
from shared.contracts.messages import Destination
from shared.kafka.dead_letter import dead_letter
from shared.kafka.follower import Follower
from shared.kafka.pipeline_cache import PipelineCache
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.runtime.background import Heartbeat
from shared.runtime.http import ServiceServer
from shared.runtime.metrics import Metrics, together
from shared.runtime.metrics_access import MetricsAccess
from shared.runtime.own_address import listen, own_port
from shared.runtime.process import end_children, is_supervised
from shared.runtime.signals import Signals, end_now
from shared.runtime.spark import ALL_CORES, cores, is_local, session

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.5
SWEEP_ENDS_WITHIN_S = 1.0
"""A look at a catalog that takes longer is left behind: it writes nothing."""


def main(deployment: Deployment, signals: Signals) -> int:
    """Run an applier until it is told to stop. Returns the exit code."""
    return ApplierService(deployment).run(signals)


class ApplierService:
    """Wires the applier's parts together."""

    def __init__(self, deployment: Deployment) -> None:
        config = deployment.common
        self._deployment = deployment
        self._name = f"{config.instance.id}-{socket.gethostname()}-{os.getpid()}"
        self._settings = KafkaSettings.from_config(config)
        self._topics = Topics(self._settings.prefix)
        self._directory = DestinationCache()
        self._metrics = {name: Metrics(name) for name in deployment.names}
        self._consumers: dict[str, PipelineConsumer] = {}
        self._stopping = threading.Event()
        self._reload = threading.Event()
        self._broken: Exception | None = None
        self._spark_ready = False

    def run(self, signals: Signals) -> int:
        signals.on_end(lambda: self._stop(signals))
        signals.on_reload(self._reload.set)
        config = self._deployment.common
        scraping = MetricsAccess.of(config)
        listening = listen(config.server.host, own_port(config.applier.port), "applier.port")
        server = ServiceServer(listening, self._exposition, self._readiness, scraping)
        server.start()
        try:
            self._run(config)
        finally:
            server.stop()
        if isinstance(self._broken, (ConfigError, DependencyError)):
            raise self._broken
        return 1 if self._broken is not None else 0

    def _stop(self, signals: Signals) -> None:
        """What waits for Spark to start has nothing to finish, and would wait for it a while."""
        self._stopping.set()
        if not self._spark_ready:
            end_children()
            log.info("applier_stopped_early")
            end_now(signals.exit_code)

    def _run(self, config: Config) -> None:
        ensure(self._settings)
        client = f"viaduck-applier-{self._name}"
        self._publisher = Publisher(self._settings, client)
        topics = [self._topics.destinations, self._topics.pipelines]
        self._follower = follower = Follower(self._settings, f"{client}-destinations", topics, urgent=False)
        self._copying = PipelineCache(self._deployment.copies, lambda: follower.level)
        follower.start(self._followed)
        renewal = RenewalWatch(self._settings, f"{client}-renewal", self._renew)
        renewal.start()
        context = session(config, "viaduck-applier", self._planned(), DAEMON)
        try:
            if not self._stopping.is_set():
                self._work(self._context(config, context))
            context.stop()
        finally:
            renewal.stop()
            self._follower.stop()
            self._publisher.close()

    def _planned(self) -> int:
        """Pipelines to make room for: another may come where one can."""
        return max(len(self._deployment.configs), 2 if self._deployment.may_grow else 1)

    def _context(self, config: Config, context: SparkContext) -> ApplierContext:
        return ApplierContext(
            name=self._name,
            settings=self._settings,
            topics=self._topics,
            publisher=self._publisher,
            directory=self._directory,
            spark=context,
            limits=limits(config),
            pipelines=lambda: len(self._deployment.configs),
            configs=lambda: self._deployment.configs,
            most_tasks=most_tasks(config, context),
            open_lakes=OpenLakes(local=is_local(config.spark.master)),
            unreadable=self._unreadable,
            broken=self._break,
        )

    def _work(self, context: ApplierContext) -> None:
        consumers = [
            PipelineConsumer(config, context, self._metrics[config.pipeline]) for config in self._deployment.configs
        ]
        parallelism = consumers[0].warm()
        self._spark_ready = True  # from here on an end is an orderly one
        self._send_out(consumers)
        log.info("applier_ready", parallelism=parallelism, name=self._name, pipelines=len(consumers))
        sweep = self._sweep()
        sweep.start()
        with Heartbeat("applier") as heartbeat:
            self._look_until_stopped(context, heartbeat)
        self._finish()
        sweep.stop(SWEEP_ENDS_WITHIN_S)

    def _sweep(self) -> HealthSweep:
        return HealthSweep(
            every_s=lambda: self._deployment.common.health.every_seconds,
            consumers=lambda: list(self._consumers.values()),
            sender=self._publisher,
            topic=self._topics.progress,
            applier=self._name,
        )

    def _look_until_stopped(self, context: ApplierContext, heartbeat: Heartbeat) -> None:
        look_at_s = 0.0
        while not self._stopping.wait(LOOK_EVERY_S):
            heartbeat.turned()
            mended = bool(self._deployment.left_out) and time.monotonic() >= look_at_s
            if self._reload.is_set() or mended:
                self._reload.clear()
                self._read_again(context)
                look_at_s = time.monotonic() + LOOK_AGAIN_S
            self._look(context)

    def _send_out(self, consumers: Iterable[PipelineConsumer]) -> None:
        for consumer in consumers:
            self._consumers[consumer.pipeline] = consumer
            consumer.start()

    def _read_again(self, context: ApplierContext) -> None:
        """Take up new pipelines and new destinations, and let go of pipelines whose file is gone."""
        try:
            new = self._deployment.again()
        except ConfigError as error:
            if error.mistakes != self._deployment.left_out:
                log.warning("files_refused", mistakes=error.mistakes)
            return
        self._take_over(new, context)

    def _look(self, context: ApplierContext) -> None:
        """Take up pipelines that came over REST, and let go of those that went."""
        if self._deployment.may_grow and not is_supervised():  # under `viaduck up` control writes them, for all
            self._copying.refresh()
        if self._deployment.copies_changed():
            new = self._deployment.with_copies()
            if new.withheld:
                log.error("pipelines_refused", mistakes=new.withheld)
            self._take_over(new, context)

    def _take_over(self, new: Deployment, context: ApplierContext) -> None:
        self._deployment = new
        for name in [name for name in self._consumers if new.find(name) is None]:
            self._consumers.pop(name).tell_to_stop()
            del self._metrics[name]
            log.info("pipeline_removed", pipeline=name)
        for config in new.configs:
            consumer = self._consumers.get(config.pipeline)
            if consumer is not None and consumer.take(config):
                continue
            if consumer is not None:
                consumer.tell_to_stop()
            metrics = self._metrics.setdefault(config.pipeline, Metrics(config.pipeline))
            self._send_out([PipelineConsumer(config, context, metrics)])
            log.info("pipeline_added", pipeline=config.pipeline, over_rest=config.over_rest)

    def _finish(self) -> None:
        consumers = list(self._consumers.values())
        for consumer in consumers:
            consumer.tell_to_stop()
        deadline = time.monotonic() + FINISH_WITHIN_S
        for consumer in consumers:
            consumer.stop(max(0.0, deadline - time.monotonic()))

    # -- what the parts ask of us -------------------------------------------------------------------------------------

    def _followed(self, record: Record) -> None:
        try:
            if record.topic == self._topics.pipelines:
                self._copying.note(record)
            else:
                self._forget_if_gone(self._directory.put(record))
        except UnreadableMessage as error:
            self._dead_letter(record, str(error))

    def _forget_if_gone(self, said: Destination | None) -> None:
        metrics = None if said is None or not said.removed else self._metrics.get(said.pipeline)
        if said is not None and metrics is not None:
            metrics.forget(said.destination)

    def _renew(self) -> None:
        self._publisher.rebuild()
        self._copying.renewed()
        self._follower.renew()
        for consumer in list(self._consumers.values()):
            consumer.renew()

    def _unreadable(self, pipeline: str, record: Record, reason: str) -> None:
        """All consumers read the work topic; one of them reports."""
        if pipeline == self._teller(record):
            self._dead_letter(record, reason)

    def _dead_letter(self, record: Record, reason: str) -> None:
        self._metrics[self._teller(record)].dead_letters_total.labels(topic=record.topic).inc()
        dead_letter(self._publisher, self._topics, record, reason, "applier")

    def _teller(self, record: Record) -> str:
        """The pipeline that a record's key names, or the first."""
        named, _, _ = (record.key or "").partition("/")
        return named if named in self._metrics else self._deployment.names[0]

    def _break(self, error: Exception) -> None:
        self._broken = error
        self._stopping.set()

    def _exposition(self) -> str:
        return together(list(self._metrics.values()))

    def _readiness(self) -> Mapping[str, str | None]:
        consumers = list(self._consumers.values())
        broker = (
            next((consumer.problem for consumer in consumers if consumer.problem), None) if consumers else "starting"
        )
        return {"broker": broker, "spark": None if self._spark_ready else "the Spark session is starting"}


def most_tasks(config: Config, context: SparkContext) -> int:
    """Of one job: as many as there are cores, where more slots than that are our choice, for tasks that wait."""
    slots = context.defaultParallelism
    return min(slots, cores()) if config.spark.master == ALL_CORES else slots


def limits(config: Config) -> Limits:
    applier = config.applier
    return Limits(
        max_open_lakes=applier.max_open_lakes,
        threads=applier.threads_per_worker,
        most_threads=applier.max_threads_per_worker,
        deadline_s=applier.deadline_seconds,
        seed_deadline_s=applier.seed_deadline_seconds,
        stall_s=applier.stall_seconds,
        memory_limit=applier.memory_limit,
        commit=applier.commit,
    )
