"""Fills a registry that is new, or an older copy of itself, from what others remember, before it is used."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol

import structlog
from sqlalchemy import Connection

from services.control.model.declared import identity
from services.control.model.lifecycle import Registered, Revision
from services.control.model.recovery import NOT_KEPT, RememberedPipeline, missed, recall
from services.control.store.audit_log import RegistryRebuilt, note_rebuilt
from services.control.store.pipeline_store import PipelineStore
from services.control.store.registry import DestinationRegistry, Held
from shared.config.model import Config
from shared.config.pipeline_files import PipelineFiles
from shared.contracts.errors import DependencyError, UnreadableMessage
from shared.contracts.latest import Latest
from shared.contracts.messages import Destination, PipelineDocument, Progress
from shared.contracts.reports import parse_progress
from shared.kafka.follower import Follower
from shared.kafka.record import Record, keyed_message
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics

log = structlog.get_logger(__name__)

READ_WITHIN_S = 30.0
TOO_MANY_CHANGES = 2**53
"""No registry counts so far: a message that says so would leave no room to count on."""

MOST_NAMED = 100
"""Destinations that could not be read: the number of such messages is untrusted."""


Published = Mapping[str, Mapping[str, Destination]]
"""By pipeline and id: the newest message, also a removal."""


class KafkaAccess(Protocol):
    """The part of ``services.control.pipeline.SharedResources`` that is used here."""

    @property
    def client(self) -> str: ...
    @property
    def settings(self) -> KafkaSettings: ...
    @property
    def topics(self) -> Topics: ...


def rebuild(
    registry: DestinationRegistry,
    config: Config,
    settings: KafkaSettings,
    client: str,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Does nothing with a registry that is not new. Raises ``DependencyError`` where the topics can't be read."""
    if registry.is_new():
        restore(registry, config, _read(config.pipeline, settings, client), environ)


def restore(
    registry: DestinationRegistry, config: Config, memory: RememberedPipeline, environ: Mapping[str, str] = os.environ
) -> None:
    """Register what was read, and write into the trail that it was and what is lost.

    Reading takes a while. Another control may have been quicker, and then its registry holds what was changed since.
    """
    revision = Revision(uuid.uuid4().hex, datetime.now(UTC), "rebuild")
    found = recall(memory, config.routing.routed_by, lambda lake: identity(lake, config.path.parent, environ), revision)
    back = len(found.destinations) - len(found.forgotten)
    unreadable = sorted(memory.unreadable)[:MOST_NAMED]
    rebuilt = RegistryRebuilt(at=revision.at, destinations=back, unreadable=unreadable, not_recovered=NOT_KEPT)

    def decide(held: Held) -> Iterable[Registered]:
        return () if held else found.destinations

    def also(con: Connection, _: Held) -> None:
        note_rebuilt(con, registry.pipeline, rebuilt, revision.author)

    after = registry.change(decide, revision, also)
    if any(each.revision.id == revision.id for each in after.values()):
        log.warning(
            "registry_rebuilt",
            destinations=back,
            only_their_generation=list(found.forgotten),
            unreadable=unreadable,
            not_recovered=rebuilt.not_recovered,
        )


def published(common: KafkaAccess) -> Published:
    """What the topic of destinations holds.

    Raises ``DependencyError`` where it can't be read.
    """
    latest: Latest[Destination] = Latest()
    for record in Scan(common.settings, f"{common.client}-rebuild").all(common.topics.destinations):
        try:
            said = keyed_message(record, Destination)
        except UnreadableMessage:
            continue  # the services that follow the topic put it aside
        if said is not None and said.version < TOO_MANY_CHANGES:
            latest.take(said)
    found: dict[str, dict[str, Destination]] = {}
    for said in latest:
        found.setdefault(said.pipeline, {})[said.destination] = said
    return found


def catch_up(
    registry: DestinationRegistry,
    config: Config,
    told: Mapping[str, Destination],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Register what was published and is missing, because an older copy of the registry was restored.

    Otherwise other services would ignore this registry until its versions exceed the old ones, destinations removed
    since the backup would return, and those added since would be missing. Raises ``DependencyError``.
    """
    revision = Revision(uuid.uuid4().hex, datetime.now(UTC), "rebuild")

    def later(held: Held) -> tuple[Registered, ...]:
        base = config.path.parent
        return missed(told, held, config.routing.routed_by, lambda lake: identity(lake, base, environ), revision)

    news = later(registry.destinations())
    if not news:
        return
    registry.count_on_from(*max(told[each.id].order[:2] for each in news))
    registry.change(later, revision)
    names = sorted(each.id for each in news)
    log.warning(
        "registry_caught_up",
        destinations=len(names),
        among_them=names[:MOST_NAMED],
        not_recovered=NOT_KEPT,
    )


def recover(documents: PipelineStore, copies: PipelineFiles, common: KafkaAccess) -> None:
    """The pipelines that came over REST, into a registry that is new: from the topic, and from this service's copies.

    Raises ``DependencyError`` where the topic can't be read.
    """
    if not documents.is_new():
        return
    found: Latest[PipelineDocument] = Latest()
    for name in copies.names():
        if (copied := _copied(copies, name)) is not None:
            found.take(copied)
    for record in Scan(common.settings, f"{common.client}-rebuild").all(common.topics.pipelines):
        try:
            said = keyed_message(record, PipelineDocument)
        except UnreadableMessage as error:
            log.warning("recovery_message_unusable", key=record.key, reason=str(error))
            continue
        if said is not None:
            found.take(said)
    recovered = list(found)
    if recovered:
        documents.adopt(recovered)
        there = [each.pipeline for each in recovered if each.document is not None]
        log.warning("pipelines_recovered", pipelines=there)


def _copied(copies: PipelineFiles, name: str) -> PipelineDocument | None:
    copy = copies.read(name)
    return None if copy is None else PipelineDocument(pipeline=name, version=copy.version, document=copy.document)


def _read(pipeline: str, settings: KafkaSettings, client: str) -> RememberedPipeline:
    memory, topics = RememberedPipeline(pipeline), Topics(settings.prefix)
    follower = Follower(settings, f"{client}-rebuild", [topics.destinations, topics.progress])
    follower.start(lambda record: note_record(memory, topics, record), lambda _: None)
    try:
        if not follower.caught_up.wait(READ_WITHIN_S):
            hint = "the registry is empty; what was registered before has to be read from the topics first"
            raise DependencyError("broker", f"the topics could not be read within {READ_WITHIN_S:g} s", hint)
    finally:
        follower.stop()
    return memory


def _note_destination(memory: RememberedPipeline, name: str, record: Record) -> None:
    try:
        said = keyed_message(record, Destination)
    except UnreadableMessage:
        memory.note_unreadable(name)
        raise
    if said is not None:
        memory.note_destination(said)


def note_record(memory: RememberedPipeline, topics: Topics, record: Record) -> None:
    """What can't be read is dead-lettered by those who follow the topics for good."""
    pipeline, _, name = (record.key or "").partition("/")
    if pipeline != memory.pipeline or not name:
        return
    try:
        if record.topic == topics.destinations:
            _note_destination(memory, name, record)
        elif record.value is not None and isinstance(said_of := parse_progress(record.value), Progress):
            memory.note_progress(said_of)
    except UnreadableMessage as error:
        log.warning("recovery_message_unusable", key=record.key, reason=str(error))
