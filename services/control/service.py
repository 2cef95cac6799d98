"""The control service: one process that keeps the registry, publishes what is wanted, and tells how it goes."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Mapping

import structlog
import uvicorn

from services.control.app import build
from services.control.metrics_view import exposition
from services.control.operations.pipeline_service import PipelineService
from services.control.pipeline import SharedResources
from services.control.pipeline_manager import PipelineManager
from services.control.progress_consumer import handler
from services.control.readiness import Readiness
from services.control.store.access_audit import WRITE_EVERY_S, AccessAudit
from services.control.store.audit_log import SERVER, AuditLog
from services.control.store.database import Database
from services.control.store.pipeline_store import PipelineStore
from services.control.store.tokens import Tokens
from services.control.web.context import Sources
from services.control.web.guard import Guard
from shared.config import public_url
from shared.config.deployment import Deployment
from shared.config.model import Config
from shared.contracts.errors import ConfigError
from shared.kafka.broker import Broker
from shared.kafka.dead_letter import dead_letter
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.runtime.http_connections import BoundedHttpConnection, server_settings
from shared.runtime.loopback import is_loopback
from shared.runtime.metrics_access import MetricsAccess
from shared.runtime.own_address import bind, peers
from shared.runtime.peers import Peers
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

CLIENT = "viaduck-control"
FINISH_REQUESTS_S = 2
END_WITHIN_S = 0.5
"""For each thread and client; those that take longer are abandoned. The shutdown takes less than five seconds."""

ENSURE_WITHIN_S = 10.0


def main(deployment: Deployment, signals: Signals) -> int:
    """Run until a signal ends it. Raises ``ConfigError`` and ``DependencyError`` for what it can't begin with."""
    with contextlib.closing(Control(deployment, os.environ)) as control:
        return control.run(signals)


class Control:
    """The parts of the service put together."""

    def __init__(self, deployment: Deployment, environ: Mapping[str, str]) -> None:
        self._closing = contextlib.ExitStack()
        self._error: Exception | None = None
        try:
            self._assemble(deployment, environ)
        except Exception:
            self.close()
            raise

    def _assemble(self, deployment: Deployment, environ: Mapping[str, str]) -> None:
        config = deployment.common
        scraping = MetricsAccess.of(config, environ)
        self._socket = self._closing.enter_context(bind(config.server.host, config.server.port, "server.port"))
        self._most_destinations = config.metrics.most_destinations
        self._settings = settings = KafkaSettings.from_config(config, environ)
        self._topics = Topics(settings.prefix)
        database = self._closing.enter_context(contextlib.closing(Database.open(config, environ)))
        self._peers = self._closing.enter_context(contextlib.closing(Peers(peers(environ))))
        self._publisher = Publisher(settings, CLIENT)
        self._closing.callback(self._publisher.close, END_WITHIN_S)
        self._tokens = Tokens(database)
        self._closing.callback(self._tokens.stop, END_WITHIN_S)
        common = SharedResources(
            CLIENT, environ, settings, self._topics, self._publisher, database, self._tokens, self._end
        )
        documents = PipelineStore(database, deployment.copies, self._publisher, self._topics.pipelines)
        manager = PipelineManager(deployment, common, documents, self._hear_again)
        self._manager = self._closing.enter_context(contextlib.closing(manager))
        self._pipeline_service = PipelineService(documents, manager, environ)
        checks = {"broker": Broker(settings, CLIENT).problem, "registry": database.problem}
        self._readiness = self._closing.enter_context(
            contextlib.closing(Readiness(checks, self._peers, self._manager.sources))
        )
        self._follower = Follower(settings, CLIENT, [self._topics.progress], urgent=False)
        self._renewal = RenewalWatch(settings, f"{CLIENT}-renewal", self._renewed)
        self._incidents = AccessAudit(database)
        self._closing.callback(self._incidents.stop, WRITE_EVERY_S)
        sources = Sources(
            self._manager.handles,
            self._readiness.checks,
            self._exposition,
            self._tokens,
            self._pipeline_service,
            self._incidents,
            AuditLog(database, SERVER),
        )
        app = build(sources, guard_of(config, scraping, self._tokens))
        self._server = uvicorn.Server(server_settings(app, BoundedHttpConnection, FINISH_REQUESTS_S))

    def run(self, signals: Signals) -> int:
        """Serve until a signal comes or a thread fails. Raises ``ConfigError`` where the source refutes the file."""
        ensure(self._settings, ENSURE_WITHIN_S)
        self._tokens.refresh()
        self._manager.begin()
        gc.freeze()  # objects that exist now stay: a full collection would pause all threads while it scans them
        signals.on_reload(self._manager.reload)
        self._follower.start(handler(self._manager.note, self._unreadable), self._end)
        self._closing.callback(self._follower.stop, END_WITHIN_S)
        self._manager.start()
        self._renewal.start()
        self._tokens.start()
        self._incidents.start()
        self._closing.callback(self._renewal.stop, END_WITHIN_S)
        log.info("control_listening", address=self._socket.getsockname()[:2])
        signals.on_end(self._finish)
        self._server.run(sockets=[self._socket])
        if isinstance(self._error, ConfigError):
            raise self._error
        return 0 if self._error is None else 1

    def close(self) -> None:
        self._closing.close()

    def _end(self, error: Exception) -> None:
        """A thread can't go on: so can't we."""
        self._error = error
        self._server.should_exit = True

    def _finish(self) -> None:
        self._server.should_exit = True

    def _hear_again(self) -> None:
        self._follower.renew()

    def _renewed(self) -> None:
        self._publisher.rebuild()
        self._follower.renew()
        self._manager.repeat()

    def _exposition(self) -> str:
        return exposition(self._manager.metrics, self._peers, self._manager.views, self._most_destinations)

    def _unreadable(self, record: Record, reason: str) -> None:
        self._manager.metrics_of(record.key or "").dead_letters_total.labels(topic=record.topic).inc()
        dead_letter(self._publisher, self._topics, record, reason, by="control")


def guard_of(config: Config, scraping: MetricsAccess, tokens: Tokens) -> Guard:
    url = config.server.public_url
    return Guard(
        loopback=is_loopback(config.server.host),
        token=scraping.token,
        tokens=tokens,
        public_url=None if url is None else public_url.read(url),
        scraping=scraping,
    )
