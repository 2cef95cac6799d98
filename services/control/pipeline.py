"""The parts of control that each pipeline has for itself, put together. What they share is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from services.control.model.conflicts import Neighbour, PipelineContext
from services.control.model.lifecycle import ManagedBy, Revision, all_removed
from services.control.operations.destination_past import DestinationPast
from services.control.operations.destination_schema import DestinationSchemas
from services.control.operations.destination_service import DestinationService
from services.control.operations.discovery import Discovery
from services.control.operations.long_operations import Operations
from services.control.operations.reconciler import Reconciler
from services.control.operations.rejections import Destined, Rejections
from services.control.operations.skipped_records import SkippedRecords
from services.control.operations.source_watch import SourceWatch
from services.control.operations.upkeep_service import UpkeepService
from services.control.operations.work_items import Work
from services.control.reconciler_thread import ReconcilerThread
from services.control.registry_recovery import Published, catch_up, rebuild
from services.control.store.audit_log import AuditLog
from services.control.store.database import Database
from services.control.store.destination_topic import DestinationPublisher
from services.control.store.proposals import Proposals
from services.control.store.redriven import Redriven
from services.control.store.registry import DestinationRegistry
from services.control.store.tokens import Tokens
from services.control.view.history import History
from services.control.view.status_store import StatusStore
from services.control.web.context import PipelineHandle
from shared.config.model import Config
from shared.contracts.errors import ConfigError
from shared.kafka.exact_producer import ExactProducer
from shared.kafka.publisher import Publisher
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topic_part import TopicPart
from shared.kafka.topics import Topics
from shared.runtime.metrics import Metrics

REPEAT_EVERY_S = 300.0
"""How often everything is published again, for a broker that lost some of it unseen."""

END_WITHIN_S = 3.0


@dataclass(frozen=True)
class SharedResources:
    """What the pipelines of one control share."""

    client: str
    environ: Mapping[str, str]
    settings: KafkaSettings
    topics: Topics
    publisher: Publisher
    database: Database
    tokens: Tokens
    failed: Callable[[Exception], None]


class Pipeline:
    """One of them. ``begin`` when the broker can be used, then start the worker."""

    def __init__(
        self,
        config: Config,
        common: SharedResources,
        load: Callable[[str], Config],
        others: Callable[[], Iterable[Pipeline]],
        *,
        alone: bool,
    ) -> None:
        """``load``: a pipeline's file as it is now. ``others``: those beside it; ``alone``: there are none."""
        self.name = config.pipeline
        self._common = common
        self._others = others
        self.status_store = StatusStore(self.name)
        self.metrics = Metrics(self.name)
        self._registry = DestinationRegistry(common.database, self.name)
        announcer = DestinationPublisher(common.publisher, common.topics.destinations, self.name)
        self._context = PipelineContext(common.environ, self._neighbours)
        self.reconciler = Reconciler(config, self._registry, self.status_store, announcer, self._context)
        self.source_watch = SourceWatch(self.reconciler, self.status_store, common.environ)
        self.worker = self._worker(load, alone=alone)
        self.handle = self._handle()

    def begin(self, published: Callable[[], Published] | None = None) -> None:
        """Take up what was; ``published``: what the topic of destinations holds. Raises ``DependencyError``."""
        common, config = self._common, self.reconciler.config
        if self._registry.is_new():
            rebuild(self._registry, config, common.settings, common.client)
        elif published is not None:
            catch_up(self._registry, config, published().get(self.name, {}), common.environ)
        self.reconciler.load()
        self.status_store.remember_rebuilt(self._service.audit_log.rebuilt())

    def start(self) -> None:
        self.worker.start()
        self.discovery.start()
        if self.source_watch.reads_lake:
            self.source_watch.start()

    def tell_to_stop(self) -> None:
        self.worker.tell_to_stop()
        self.discovery.tell_to_stop()
        self.source_watch.tell_to_stop()

    def stop(self, within_s: float = END_WITHIN_S) -> None:
        """``within_s`` for each of its threads; a thread that takes longer is abandoned."""
        self.tell_to_stop()
        self.worker.stop(within_s)
        self.discovery.stop(within_s)
        self.source_watch.stop(within_s)

    def _worker(self, load: Callable[[str], Config], *, alone: bool) -> ReconcilerThread:
        common, reconciler, status_store = self._common, self.reconciler, self.status_store
        operations, trail = Operations(common.database, self.name), AuditLog(common.database, self.name)
        self._service = DestinationService(reconciler, status_store, operations, trail, self._context)
        self.discovery = Discovery(
            reconciler, status_store, self._service, Proposals(common.database, self.name), common.environ
        )
        self._history = History(status_store.view)
        self._upkeep = UpkeepService(reconciler, self._service, status_store.view, common.publisher, common.topics.work)
        skipped = SkippedRecords(status_store, trail)
        chores = [self._history.feel, self._service.close_operations, self._upkeep.turn, skipped.turn]
        return ReconcilerThread(
            reconciler, status_store, REPEAT_EVERY_S, common.failed, lambda _: load(self.name), chores, alone=alone
        )

    def _handle(self) -> PipelineHandle:
        common, view = self._common, self.status_store.view
        scan = Scan(common.settings, f"{common.client}-scan")
        work = Work(self.name, common.topics, scan, common.publisher, view, self._service.audit_log)
        past = DestinationPast(lambda: self.reconciler.config, view, common.environ, self.source_watch.times_of)
        schemas = DestinationSchemas(lambda: self.reconciler.config, view, common.environ)
        return PipelineHandle(view, self._service, work, self._history, self.discovery, self.source_watch, past,
                              self._upkeep, schemas, self._rejections())  # fmt: skip

    def _rejections(self) -> Rejections:
        common = self._common
        part = TopicPart(common.settings, f"{common.client}-rejected")
        marks = Redriven(common.database, self.name)
        return Rejections(lambda: self.reconciler.config, part, self._reached, marks, self._service.audit_log)

    def _reached(self, config: Config) -> Destined:
        """The source's topic, to send records to it; it is not created."""
        if config.topic is None:
            raise ConfigError(["source: is a lake, and a topic is needed"])
        settings, topic = topic_settings(config, self._common.environ), config.topic.topic
        client = f"{self._common.client}-redrive"
        properties = {**settings.properties, "allow.auto.create.topics": "false"}
        partitions = TopicLog(settings, topic, client).identity().partitions
        return Destined(partitions, ExactProducer(replace(settings, properties=properties), topic, client))

    def neighbours(self, managed_by: Collection[ManagedBy]) -> Iterator[Neighbour]:
        """Its destinations that came in such ways, for the pipelines beside it."""
        for each in self.reconciler.held.values():
            if not each.removed and each.managed_by in managed_by:
                yield Neighbour(self.name, each.declared, self.reconciler.config.upkeep)

    def _neighbours(self, managed_by: Collection[ManagedBy]) -> Iterator[Neighbour]:
        for other in self._others():
            if other is not self:
                yield from other.neighbours(managed_by)


def forget(common: SharedResources, pipeline: str, revision: Revision) -> None:
    """Remove all destinations of a pipeline that does not run here. Raises ``DependencyError``."""
    registry = DestinationRegistry(common.database, pipeline)
    before = registry.destinations()
    if all(each.removed for each in before.values()):
        return
    after = registry.change(lambda held: all_removed(held, revision), revision)
    announcer = DestinationPublisher(common.publisher, common.topics.destinations, pipeline)
    announcer.announce(each for each in after.values() if each is not before.get(each.id))
