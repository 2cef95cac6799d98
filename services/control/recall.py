"""A registry that was lost, put together again from what the topics still hold. Values in, values out.

The file declares its destinations again by itself, and positions are in the destinations. What only the topics know is
what came over REST, and which generation each life is in: a later life must fence every item of the ones before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from services.control.lifecycle import Declared, Registered, Revision
from shared.messages import MAX_GENERATION, Destination, LakeRef, Progress, SeedMode

NOT_KEPT = (
    "names, authors and times of earlier changes, which destinations appeared by themselves, proposals,"
    " the audit trail, operations and tokens"
)
"""What no topic holds."""


@dataclass
class Memory:
    """What the topics said of one pipeline, as far as they have been read."""

    pipeline: str
    wanted: dict[str, Destination] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    """The highest that anybody spoke of, by destination."""
    unreadable: set[str] = field(default_factory=set)
    """Destinations whose last message can't be used."""
    _orders: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Of the latest message of each."""

    def note_destination(self, name: str, said: Destination | None) -> None:
        """``said`` None: a tombstone, which nobody writes any more."""
        if said is None:
            return
        self._note_generation(name, said.generation)
        if said.order >= self._orders.get(name, said.order):
            self.unreadable.discard(name)
            self._orders[name] = said.order
            self.wanted.pop(name, None)
            if not said.removed:
                self.wanted[name] = said

    def note_unreadable(self, name: str) -> None:
        """What was said before it, if that is still there, is the best that is known."""
        self.unreadable.add(name)

    def note_progress(self, progress: Progress) -> None:
        self._note_generation(progress.destination, progress.generation)

    def _note_generation(self, name: str, generation: int) -> None:
        if 1 <= generation <= MAX_GENERATION:
            self.generations[name] = max(generation, self.generations.get(name, 0))


@dataclass(frozen=True)
class Recalled:
    """What is to be registered again; ``forgotten``: ids of which only the generation is left."""

    destinations: tuple[Registered, ...]
    forgotten: tuple[str, ...]


def recall(memory: Memory, slice_of: str, identity: Callable[[LakeRef], str | None], revision: Revision) -> Recalled:
    """Whoever has no message any more is remembered as removed, for the generation alone."""
    there = [
        Registered(
            declared=_declared(said, slice_of, identity(said.lake)),
            generation=memory.generations[name],
            revision=revision,
            managed_by=said.managed_by,
            desired=said.state,
            replace=said.replace,
            removing=said.drop,
            seed_at=said.seed_at,
        )
        for name, said in memory.wanted.items()
    ]
    gone = tuple(name for name in memory.generations if name not in memory.wanted)
    removed = [_removed(name, memory.generations[name], slice_of, revision) for name in gone]
    return Recalled((*there, *removed), gone)


def _declared(said: Destination, slice_of: str, identity: str | None) -> Declared:
    return Declared(
        id=said.destination,
        routing_value=said.routing_value,
        lake=said.lake,
        identity=identity,
        schema_name=said.schema_name,
        table=said.table,
        seed_mode=said.seed_mode,
        slice_of=slice_of,
    )


def _removed(name: str, generation: int, slice_of: str, revision: Revision) -> Registered:
    nothing = Declared(name, "", LakeRef(), None, "main", "", SeedMode.SCAN, slice_of)
    return Registered(nothing, generation, revision, "api", removed=True)
