"""The lives of a destination: how the file, operators and answers of appliers change what the registry holds.

========================================  ==========================================================
what happens                              effect on the destination
========================================  ==========================================================
declared for the first time               generation 1
declared again after it was removed       the next generation, which replaces what the old one left
another routing value, lake, schema,      the next generation: the destination holds other rows than
table or routing column                   it should
another name of the same routing column   same generation, new revision
any other change of the declaration       same generation, new revision: a parked destination is tried again
no longer declared                        removed; the generation stays, so that a later one fences this one
paused, stopped                           same generation; no work is planned
resumed, restarted                        same generation, new revision: a parked destination is tried again
reseeded                                  the next generation, replacing what is there
rewound                                   the next generation, which begins at an older snapshot of the source
removed with its data                     the next generation, stopped, until an applier has dropped table and cursor
``destination_damaged``                   the next generation, replacing what is there
history gone, source re-created           the same, where ``routing.on_gap`` is ``reseed``
``upkeep_damaged``                        same generation; no work is planned until it is resumed or reseeded
the cursor holds a later generation       that generation: the registry was lost, the lake was not
========================================  ==========================================================

Values in, values out: the caller writes the result to the registry and publishes it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from shared.config.path_overlap import PathClaim, claim_of, table_names
from shared.contracts.errors import Error
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.layout import NO_LAYOUT, TableLayout
from shared.contracts.messages import (
    ADOPTABLE,
    DesiredState,
    Destination,
    LakeRef,
    SeedMode,
)
from shared.contracts.positions import SpelledPosition
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import Damage, UpkeepOverride

FIRST_GENERATION = 1

ManagedBy = Literal["file", "api"]
BY_ANY: tuple[ManagedBy, ...] = ("file", "api")
OnGap = Literal["park", "reseed"]


@dataclass(frozen=True)
class Declared:
    """A destination as a file or an operator declares it, without secrets."""

    id: str
    routing_value: str
    """In the spelling that the routing column's type gives it."""
    lake: LakeRef
    identity: str | None
    """Which lake this is, variables resolved, as an opaque text; None where a variable is not known to control."""
    schema_name: str
    table: str
    seed_mode: SeedMode
    routed_by: RoutedBy
    """What "the rows of a routing value" means in this pipeline. The column goes by the name that the file had for it;
    it is its field id, so another name may mean the same one."""
    name: str = ""
    written: Mapping[str, Any] | None = field(default=None, hash=False)
    """The entry as it was put over REST, so that a client can change it; it decides nothing."""
    layout: TableLayout = NO_LAYOUT
    laid_out: TableLayout | None = field(default=None, compare=False)
    """The layout that the table of the present life has, as far as control knows. The registry keeps it here; no
    declaration holds it. None means ``layout``."""
    upkeep: UpkeepOverride | None = None
    """What of the pipeline's upkeep is otherwise for this one."""
    evolution: EvolutionPolicy = EvolutionPolicy.FOLLOW
    comments: bool = True
    """Whether it gets the source's comments."""
    left: tuple[str, ...] = field(default=(), compare=False)
    """What its table could not be given of the source's NOT NULL, defaults and comments, as far as control knows. The
    registry keeps it here; no declaration holds it."""
    damage: Damage | None = field(default=None, compare=False)
    """What an upkeep did to its table's rows in its present life. The registry keeps it here, too."""

    def same_lake(self, other: Declared) -> bool:
        """Two names of one catalog are the same lake; where control can't resolve one, only equal names are."""
        if self.identity is not None and other.identity is not None:
            return self.identity == other.identity
        return _address(self.lake) == _address(other.lake)

    def same_table(self, other: Declared) -> bool:
        return self.same_lake(other) and self.names == other.names

    @cached_property
    def names(self) -> tuple[str, str]:
        """Of the table in its lake, equal for equal tables."""
        return table_names(self.schema_name, self.table)

    @cached_property
    def places(self) -> list[tuple[str | None, ...]]:
        """By which a destination with the same table can be found among thousands."""
        by_address = (*_address(self.lake), *self.names)
        return [by_address] if self.identity is None else [by_address, (self.identity, *self.names)]

    @property
    def lake_key(self) -> Hashable:
        """Equal for destinations of one lake, as far as control can tell."""
        return self.identity or _address(self.lake)

    @cached_property
    def claim(self) -> PathClaim | None:
        """Where its lake's files go, as far as it says."""
        return claim_of(self.id, self.identity or _address(self.lake), self.lake)

    @property
    def next_layout(self) -> TableLayout | None:
        """The layout that holds from the next reseed on, where that is another one than the table has."""
        return None if self.laid_out in (None, self.layout) else self.layout

    @property
    def says_layout(self) -> bool:
        """Whether anything was said of its layout in its present life."""
        return self.layout != NO_LAYOUT or self.next_layout is not None

    def same_content(self, other: Declared, own_names: Collection[str] = ()) -> bool:
        """Whether a position in one says something about the other. ``own_names``: those that mean the pipeline's
        routing column, and never meant another one."""
        same = self.routed_by.means(other.routed_by, own_names)
        return same and self.same_table(other) and self.routing_value == other.routing_value


@dataclass(frozen=True)
class Revision:
    """The last change of a destination: a name that no other change has, when it was by control's clock, and who."""

    id: str
    at: datetime
    author: str | None = None


class Refused(Error):
    """What a destination's state does not allow. ``type`` is a key of ``services.control.model.problems.KINDS``."""

    def __init__(self, kind: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.type = kind
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Registered:
    """A destination as the registry holds it; a removed one is kept for its generation."""

    declared: Declared
    generation: int
    revision: Revision
    managed_by: ManagedBy
    desired: DesiredState = DesiredState.RUNNING
    replace: bool = False
    removed: bool = False
    removing: bool = False
    """Its data is to be dropped; when an applier has done so it is removed."""
    seed_at: int | None = None
    """The source snapshot at which this life begins, where it was rewound."""
    seed_from: str | None = None
    """Of a topic: the spelling of ``seed_at``, or ``earliest`` for a reseed from there."""
    version: int = 0
    """The registry's count of changes when this one was written; 0 before it was."""
    appeared_at: datetime | None = None
    """When it was discovered and created by the template and the policy; None if it was declared."""
    registry: int = field(default=0, compare=False)
    """When the registry that holds it began with its pipeline, in milliseconds since 1970."""

    @property
    def id(self) -> str:
        return self.declared.id

    @property
    def is_damaged(self) -> bool:
        """By an upkeep; it waits for an operator."""
        return self.declared.damage is not None and not self.declared.damage.lifted

    def message(self, pipeline: str) -> Destination:
        declared = self.declared
        return Destination(
            pipeline=pipeline,
            destination=declared.id,
            generation=self.generation,
            routing_value=declared.routing_value,
            state=DesiredState.PAUSED if self.is_damaged and self.desired is DesiredState.RUNNING else self.desired,
            lake=declared.lake,
            schema_name=declared.schema_name,
            table=declared.table,
            seed_mode=declared.seed_mode,
            layout=declared.layout if declared.says_layout else None,
            evolution=None if declared.evolution is EvolutionPolicy.FOLLOW else declared.evolution,
            comments=None if declared.comments else False,
            replace=self.replace,
            revision=self.revision.id,
            seed_at=self.seed_at,
            seed_from=self.seed_from,
            drop=self.removing,
            managed_by=self.managed_by,
            removed=self.removed,
            registry=self.registry,
            version=self.version,
            upkeep=declared.upkeep,
            routed_by=declared.routed_by,
            damage=declared.damage,
        )


def declare(
    held: Registered | None,
    declared: Declared,
    by: ManagedBy,
    revision: Revision,
    *,
    touched: bool = False,
    own_names: Collection[str] = (),
) -> Registered:
    """What becomes of a destination that is declared; ``held`` itself where that is nothing new.

    ``touched`` says that something changed that the registry does not see: a password in the file. ``own_names``:
    of the routing column, where the source was looked at for this. TLA: ``Declare``.
    """
    if held is None:
        return Registered(declared, FIRST_GENERATION, revision, by)
    if held.removed or held.removing:
        return Registered(declared, held.generation + 1, revision, by, version=held.version)
    if not declared.same_content(held.declared, own_names):
        return replace(
            held,
            declared=declared,
            generation=held.generation + 1,
            revision=revision,
            managed_by=by,
            replace=False,
            seed_at=None,
            seed_from=None,
        )
    known = held.declared
    laid_out = _laid_out(declared, known)
    declared = replace(_still_known(declared, known), laid_out=laid_out, left=known.left, damage=known.damage)
    if declared == held.declared and by == held.managed_by and not touched:
        return held
    return replace(held, declared=declared, revision=revision, managed_by=by)


def remove(held: Registered, revision: Revision) -> Registered:
    """Stopped and forgotten; what it wrote stays where it is. TLA: ``Remove``."""
    if held.removed:
        return held
    return replace(
        held,
        removed=True,
        removing=False,
        desired=DesiredState.STOPPED,
        replace=False,
        seed_at=None,
        seed_from=None,
        revision=revision,
    )


def all_removed(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
    """Those that change where every destination of a pipeline is removed."""
    return [remove(each, revision) for each in held.values() if not each.removed]


def drop(held: Registered, revision: Revision) -> Registered:
    """A last life, in which an applier takes away what the destination holds; the one before it is fenced.

    Asked for again it is tried again. TLA: ``Bury``.
    """
    if held.removing:
        return replace(held, revision=revision)
    return replace(
        held,
        generation=held.generation + 1,
        removing=True,
        desired=DesiredState.STOPPED,
        replace=False,
        seed_at=None,
        seed_from=None,
        revision=revision,
    )


def pause(held: Registered, revision: Revision) -> Registered:
    """Nothing is planned until it is resumed. Raises ``Refused`` where it is stopped."""
    if held.desired is DesiredState.STOPPED:
        raise Refused("conflict", f"{held.id} is stopped", "restart it first; a stopped one needs no pause")
    return _switched(held, DesiredState.PAUSED, revision)


def stop(held: Registered, revision: Revision) -> Registered:
    """Switched off until it is restarted."""
    return _switched(held, DesiredState.STOPPED, revision)


def resume(held: Registered, revision: Revision) -> Registered:
    """Go on after a pause; a parked one is tried again. Raises ``Refused`` where it is stopped."""
    if held.desired is DesiredState.STOPPED:
        raise Refused("conflict", f"{held.id} is stopped, not paused", "restart it")
    return restart(held, revision)


def restart(held: Registered, revision: Revision) -> Registered:
    """Go on from wherever it is, tried at once; an operator's word that what upkeep damaged was looked at."""
    damage = held.declared.damage
    lifted = None if damage is None else damage.model_copy(update={"lifted": True})
    declared = held.declared if lifted == damage else replace(held.declared, damage=lifted)
    return replace(held, declared=declared, desired=DesiredState.RUNNING, revision=revision)


def reseed(held: Registered, revision: Revision, *, earliest: bool = False) -> Registered:
    """A new life that replaces whatever the table holds; of a topic from its oldest record on, where ``earliest`` says
    so. TLA: ``Reseed``, ``NextLife``."""
    return replace(
        held,
        declared=replace(held.declared, laid_out=None, left=(), damage=None),
        generation=held.generation + 1,
        replace=True,
        seed_at=None,
        seed_from="earliest" if earliest else None,
        revision=revision,
    )


def rewind(held: Registered, to: SpelledPosition, revision: Revision) -> Registered:
    """A new life that begins at position ``to`` of the source, and goes on from there. TLA: ``RewindRecords``."""
    return replace(
        held,
        generation=held.generation + 1,
        replace=False,
        seed_at=to.number,
        seed_from=to.spelled or None,
        revision=revision,
    )


def _switched(held: Registered, desired: DesiredState, revision: Revision) -> Registered:
    return held if held.desired is desired else replace(held, desired=desired, revision=revision)


def adopt(held: Registered, generation: int, revision: Revision) -> Registered:
    """Continue as the generation of the cursor. Never backwards, and never so far that no generation could follow: no
    message could hold it, and none behind it would be published.

    TLA: ``Adopts``.
    """
    if not held.generation < generation <= ADOPTABLE:
        return held
    return replace(held, generation=generation, revision=revision)


def _laid_out(declared: Declared, before: Declared) -> TableLayout | None:
    """What the table goes on to have where the declaration changes: a life keeps the layout that it began with."""
    had = before.laid_out or before.layout
    return None if had == declared.layout else had


def _still_known(declared: Declared, before: Declared) -> Declared:
    """Keep an identity that could be resolved once: a variable that is missing today says nothing about the lake."""
    return declared if declared.identity is not None else replace(declared, identity=before.identity)


def _address(lake: LakeRef) -> tuple[str | None, ...]:
    return lake.catalog, lake.catalog_env, lake.postgres_uri_env, lake.metadata_schema
