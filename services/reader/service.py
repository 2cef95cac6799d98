"""The reader's process: one loop that looks, counts, plans and publishes; all others only put events in its inbox."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack

import structlog

from services.reader.loop import Loop
from services.reader.messaging.message_decoder import EventQueue, Intake, Renewed, Woken
from services.reader.messaging.partitioner import Partitioner
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.source.sources import open_source
from shared.config.model import Config
from shared.contracts.errors import SourceError
from shared.contracts.reports import Share
from shared.kafka.dead_letter import dead_letter
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_look import look
from shared.kafka.topics import Topics, ensure
from shared.runtime.checks import SOURCE
from shared.runtime.http import ServiceServer
from shared.runtime.metrics import Metrics
from shared.runtime.metrics_access import MetricsAccess
from shared.runtime.own_address import listen, own_port
from shared.runtime.process import die_with_parent, is_supervised
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

END_WITHIN_S = 2.0


def main(config: Config, signals: Signals) -> int:
    """Run a reader until it is told to stop. Returns the exit code.

    Raises ``ConfigError`` where file and source don't fit, ``DependencyError`` where the broker does not answer.
    """
    if is_supervised():
        die_with_parent()
    else:
        require_fit(config)  # `viaduck up` has looked itself, and a table that was dropped since may come back
    with ExitStack() as closing:
        return ReaderService(config, os.environ, closing).run(signals)


def require_fit(config: Config) -> None:
    """Hold the file against the source, if that can be read now; else it will be seen later."""
    try:
        look(config)
    except SourceError as error:
        log.warning("source_not_readable_yet", type=error.type, why=error.message)


class ReaderService:
    """Wires the reader's parts together for one pipeline. What it opens, ``closing`` closes."""

    def __init__(self, config: Config, environ: Mapping[str, str], closing: ExitStack) -> None:
        self._settings = settings = KafkaSettings.from_config(config, environ)
        self._topics = Topics(settings.prefix)
        self._metrics = Metrics(config.pipeline)
        self._events = EventQueue()
        client = f"viaduck-reader-{config.instance.id}-{socket.gethostname()}-{os.getpid()}"
        ensure(settings)
        partitioner = Partitioner()
        self._publisher = Publisher(settings, client, {self._topics.work: partitioner.place})
        closing.callback(self._publisher.close, END_WITHIN_S)
        self._follower = Follower(settings, client, [self._topics.destinations, self._topics.progress])
        closing.callback(self._follower.stop, END_WITHIN_S)
        source = open_source(config, environ, client, self._metrics)
        closing.callback(source.close)
        self._intake = Intake(config.pipeline, self._topics, self._events, self._unreadable)
        outlet = self._outlet(config)
        self._loop = Loop(config, source, self._events, outlet, partitioner, self._metrics, self._follower.caught_up)
        self._renewal = RenewalWatch(settings, f"{client}-renewal", self._renewed)
        closing.callback(self._renewal.stop, END_WITHIN_S)
        self._server = self._listening(config, own_port(config.reader.port, environ))

    def run(self, signals: Signals) -> int:
        self._server.start()
        signals.on_end(self._stop)
        try:
            self._follower.start(self._intake)
            self._renewal.start()
            self._loop.run()
        finally:
            self._server.stop()
        return 0

    def _stop(self) -> None:
        self._loop.stop()
        self._events.put(Woken())

    def _renewed(self) -> None:
        self._publisher.rebuild()
        self._follower.renew()
        self._events.put(Renewed())

    def _listening(self, config: Config, port: int) -> ServiceServer:
        listening, scraping = listen(config.server.host, port, "reader.port"), MetricsAccess.of(config)
        return ServiceServer(listening, self._loop.exposition, self._checks, scraping, looks=self._looks)

    def _outlet(self, config: Config) -> WorkPublisher:
        share = Share.model_validate(config.instance.partition.model_dump())
        return WorkPublisher(
            self._publisher, self._topics, config.pipeline, config.instance.id, share, self._events.put,
            config.routing.routed_by,
        )  # fmt: skip

    def _unreadable(self, record: Record, reason: str) -> None:
        self._metrics.dead_letters_total.labels(topic=record.topic).inc()
        dead_letter(self._publisher, self._topics, record, reason, "reader")

    def _looks(self) -> Mapping[str, float | None]:
        return {SOURCE: self._loop.look_age_s}

    def _checks(self) -> Mapping[str, str | None]:
        return {
            "broker": self._follower.problem or self._publisher.problem,
            "topics": None if self._follower.caught_up.is_set() else "still being read",
            SOURCE: self._loop.source_problem,
        }
