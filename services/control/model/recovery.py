"""A registry that was lost, put together again from what the topics still hold. Values in, values out.

The file declares its destinations again by itself, and positions are in the destinations. What only the topics know is
what came over REST, and which generation each life is in: a later life must fence every item of the ones before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.control.model.lifecycle import Declared, Registered, Revision
from shared.contracts.latest import Latest
from shared.contracts.layout import NO_LAYOUT
from shared.contracts.messages import ADOPTABLE, DesiredState, Destination, LakeRef, Progress, SeedMode
from shared.contracts.routed_by import RoutedBy

NOT_KEPT = (
    "names, authors and times of earlier changes, which destinations appeared by themselves, proposals,"
    " the audit trail, operations and tokens"
)
"""What no topic holds."""


@dataclass
class RememberedPipeline:
    """What the topics said of one pipeline, as far as they have been read."""

    pipeline: str
    generations: dict[str, int] = field(default_factory=dict)
    """The highest generation in any message, by destination."""
    unreadable: set[str] = field(default_factory=set)
    """Destinations whose last message can't be used."""
    _told: Latest[Destination] = field(default_factory=Latest)

    @property
    def wanted(self) -> dict[str, Destination]:
        """Destinations that were declared last, and not removed."""
        return {said.destination: said for said in self._told if not said.removed}

    def note_destination(self, said: Destination) -> None:
        self._note_generation(said.destination, said.generation)
        if self._told.take(said):
            self.unreadable.discard(said.destination)

    def note_unreadable(self, name: str) -> None:
        """What was said before it, if that is still there, is the best that is known."""
        self.unreadable.add(name)

    def note_progress(self, progress: Progress) -> None:
        self._note_generation(progress.destination, progress.generation)

    def _note_generation(self, name: str, generation: int) -> None:
        if 1 <= generation <= ADOPTABLE:
            self.generations[name] = max(generation, self.generations.get(name, 0))


@dataclass(frozen=True)
class Recalled:
    """What is to be registered again; ``forgotten``: ids of which only the generation is left."""

    destinations: tuple[Registered, ...]
    forgotten: tuple[str, ...]


def recall(
    memory: RememberedPipeline, routed_by: RoutedBy, identity: Callable[[LakeRef], str | None], revision: Revision
) -> Recalled:
    """Destinations without a message are remembered as removed, for their generation alone. ``routed_by``: by the file,
    for messages of an older control, which do not tell."""
    wanted = memory.wanted
    there = [
        _registered(said, memory.generations[name], routed_by, identity(said.lake), revision)
        for name, said in wanted.items()
    ]
    gone = tuple(name for name in memory.generations if name not in wanted)
    removed = [_removed(name, memory.generations[name], routed_by, revision) for name in gone]
    return Recalled((*there, *removed), gone)


def missed(
    told: Mapping[str, Destination],
    held: Mapping[str, Registered],
    routed_by: RoutedBy,
    identity: Callable[[LakeRef], str | None],
    revision: Revision,
) -> tuple[Registered, ...]:
    """What was published of destinations later than what is ``held``: the registry is an older copy of itself.

    ``told``: of each the message that counts, removals too.
    """
    later = [said for name, said in told.items() if _is_later(said, held.get(name))]
    return tuple(_registered(said, said.generation, routed_by, identity(said.lake), revision) for said in later)


def _is_later(said: Destination, held: Registered | None) -> bool:
    """A registry knows all that it ever published, so what it does not know was published after it was copied."""
    return held is None or said.order > (held.registry, held.version, held.generation)


def _registered(
    said: Destination, generation: int, routed_by: RoutedBy, identity: str | None, revision: Revision
) -> Registered:
    return Registered(
        declared=_declared(said, routed_by, identity),
        generation=generation,
        revision=revision,
        managed_by=said.managed_by,
        desired=DesiredState.RUNNING if said.is_damaged and said.state is DesiredState.PAUSED else said.state,
        replace=said.replace,
        removed=said.removed,
        removing=said.drop and not said.removed,
        seed_at=said.seed_at,
        seed_from=said.seed_from,
    )


def _declared(said: Destination, routed_by: RoutedBy, identity: str | None) -> Declared:
    return Declared(
        id=said.destination,
        routing_value=said.routing_value,
        lake=said.lake,
        identity=identity,
        schema_name=said.schema_name,
        table=said.table,
        seed_mode=said.seed_mode,
        routed_by=said.routed_by or routed_by,
        layout=said.layout or NO_LAYOUT,
        upkeep=said.upkeep,
        evolution=said.policy,
        comments=said.comments is not False,
        damage=said.damage,
    )


def _removed(name: str, generation: int, routed_by: RoutedBy, revision: Revision) -> Registered:
    nothing = Declared(name, "", LakeRef(), None, "main", "", SeedMode.SCAN, routed_by)
    return Registered(nothing, generation, revision, "api", removed=True)
