"""Keeps the registry, the status store and the topic in step with the file and with what the appliers answer."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

import structlog

from services.control.model.answers import answer
from services.control.model.conflicts import PipelineContext, UniquenessIndex
from services.control.model.declared import DeclaredSource, declarations, declared_source
from services.control.model.lifecycle import OnGap, Registered, Revision, all_removed
from services.control.model.reconciliation import reconcile
from services.control.store import registry
from services.control.store.destination_topic import DestinationPublisher
from services.control.store.registry import DestinationRegistry
from services.control.view.status_store import StatusStore
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError
from shared.contracts.messages import Outcome, Progress
from shared.contracts.upkeep import UPKEEP_DAMAGED
from shared.kafka.source_look import look
from shared.lake.checks.source import SourceLook

log = structlog.get_logger(__name__)

Look = Callable[[Config, Mapping[str, str]], SourceLook]
Decide = Callable[[Mapping[str, Registered], Revision], Collection[Registered]]


class Reconciler:
    """Thread-safe. A change is in the registry first, then in the status store, then published.

    Other controls may change the same registry. Each publishes every change that it sees, its own or not. The last
    message of every control is therefore the registry's state, in whatever order messages reach the topic.
    """

    def __init__(
        self,
        config: Config,
        registry: DestinationRegistry,
        status_store: StatusStore,
        announcer: DestinationPublisher,
        context: PipelineContext,
        look: Look = look,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.config = config
        self._registry = registry
        self._status_store = status_store
        self._announcer = announcer
        self._context = context
        self._look = look
        self._now = now
        self._held: Mapping[str, Registered] = {}
        self._lock = threading.RLock()
        self.seen: SourceLook | None = None
        """The source as it was when the file was taken over; None before."""
        self.source: DeclaredSource | None = None
        """The same as one of the lakes that must not overlap."""

    @property
    def held(self) -> Mapping[str, Registered]:
        """All that is registered, removed ones too."""
        return self._held

    def load(self) -> None:
        """Take up what the registry holds. Raises ``DependencyError``."""
        with self._lock:
            self._hold(self._registry.destinations())

    def refresh(self) -> None:
        """Take up, and publish, what another control changed. Raises ``DependencyError``."""
        with self._lock:
            self._take_up(self._registry.destinations())

    def announce_all(self) -> None:
        with self._lock:
            self._announcer.announce_all(self._held.values(), self._now())

    def change(
        self, decide: Decide, author: str | None, also: registry.Also = registry.nothing
    ) -> Mapping[str, Registered]:
        """Do what an operator asks for, and return all that is held then.

        ``decide`` is given what is held and the revision of this change; ``also`` writes what belongs to it. Raises
        ``DependencyError`` and whatever they raise; then nothing has changed.
        """
        revision = self._revision(author)
        with self._lock:
            self._change(lambda held: decide(held, revision), revision, also)
            return self._held

    def apply(self, config: Config) -> None:
        """Make the registry hold what a file declares, after a look at the source; ``config`` is the file from then on.

        Raises ``ConfigError``, ``SourceError`` and ``DependencyError``; then nothing has changed.
        """
        seen = self._look(config, self._context.environ)
        self.seen, self.source = seen, declared_source(config, seen.lake)
        declared = declarations(config, seen.routing_values, self._context.environ)
        taken = UniquenessIndex((), self._context.neighbours({"api"}))
        clashes = [f"destinations: {each.id}: {said}" for each in declared for _, said in taken.clashes(each)]
        if clashes:
            raise ConfigError(clashes)
        touched, own_names = _touched(self.config, config), _own_names(config, seen)
        revision = self._revision("file")
        by = config.routing.routed_by
        self._change(lambda held: reconcile(held, declared, revision, touched, by, own_names), revision)
        self.config = config
        self._status_store.file_in_force = True

    def withdraw(self) -> None:
        """The file is gone, and so is all that it declared. Raises ``DependencyError``; then nothing has changed."""
        revision = self._revision("file")
        self._change(lambda held: reconcile(held, (), revision), revision)

    def forget(self, author: str | None) -> None:
        """The pipeline is deleted, and all of its destinations with it. Raises ``DependencyError``, as above."""
        revision = self._revision(author)
        self._change(lambda held: all_removed(held, revision), revision)

    def react(self) -> None:
        """Do what the answers ask for. Raises ``DependencyError``; then the same is asked again."""
        asks = self._status_store.take_asks()
        if not any(self._wants(each) for each in asks.values()):
            return
        try:
            self._meet(asks)
        except DependencyError:
            self._status_store.put_back(asks)
            raise

    def _meet(self, asks: Mapping[str, Progress]) -> None:
        revision = self._revision("applier")

        def decide(held: Mapping[str, Registered]) -> list[Registered]:
            known = [(held[name], progress) for name, progress in asks.items() if name in held]
            answered = [(each, answer(each, progress, self._on_gap, revision)) for each, progress in known]
            return [after for before, after in answered if after is not before]

        for after in self._change(decide, revision):
            _say(after, asks[after.id])

    def _wants(self, progress: Progress) -> bool:
        held = self._held.get(progress.destination)
        return held is not None and answer(held, progress, self._on_gap, held.revision) is not held

    @property
    def _on_gap(self) -> OnGap:
        return self.config.routing.on_gap

    def _change(
        self, decide: registry.Decide, revision: Revision, also: registry.Also = registry.nothing
    ) -> list[Registered]:
        with self._lock:
            return self._take_up(self._registry.change(decide, revision, also))

    def _take_up(self, held: Mapping[str, Registered]) -> list[Registered]:
        before = self._held
        if held is before:
            return []
        self._hold(held)
        changed = [each for name, each in held.items() if each is not before.get(name)]
        self._announcer.announce(changed)
        return changed

    def _hold(self, held: Mapping[str, Registered]) -> None:
        self._held = held
        self._status_store.hold(held)

    def _revision(self, author: str | None) -> Revision:
        return Revision(uuid.uuid4().hex, self._now(), author)


def _own_names(config: Config, seen: SourceLook) -> frozenset[str]:
    """By the source's own history of the column's names, so that none of them has to be remembered."""
    return seen.table.own_names(config.routing.field)


def _touched(before: Config, after: Config) -> frozenset[str]:
    """The destinations whose entry in the file changed, if only in what the registry never sees: a password."""
    old = {each.id: each for each in before.destinations}
    return frozenset(each.id for each in after.destinations if each.id in old and each != old[each.id])


def _say(after: Registered, because: Progress) -> None:
    problem = because.error
    if after.removed:
        log.info("destination_dropped", destination=after.id, generation=after.generation)
        return
    if after.is_damaged and problem is not None and problem.type == UPKEEP_DAMAGED:
        log.error("upkeep_damaged", destination=after.id, generation=after.generation,
                  message=problem.message)  # fmt: skip
    elif after.replace and because.outcome is Outcome.PARKED and problem is not None:
        log.error("destination_reseeded", destination=after.id, generation=after.generation,
                  because=problem.type, message=problem.message)  # fmt: skip
    else:
        log.warning("generation_adopted", destination=after.id,
                    generation=after.generation)  # fmt: skip
