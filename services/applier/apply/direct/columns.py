"""Which changes of columns a direct commit makes itself, and what the table is once it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.applier.apply.columns import evolve, terms
from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.direct.look import CommitBasis, Declined, decline, wanted_columns
from services.applier.apply.direct.seed import never_inlines
from shared.lake.columns.evolution import ColumnStep, NotFollowed, steps_between
from shared.lake.columns.followed import whose
from shared.lake.columns.terms import Clause, Described, TermKind
from shared.lake.direct import columns, files
from shared.lake.direct.columns import Alteration
from shared.lake.direct.eligibility import ExtensionReason, structure_refusal
from shared.lake.direct.lakes import DirectLake
from shared.lake.direct.structure import Structure


@dataclass(frozen=True)
class FollowedStructure:
    """What a commit makes of a table's columns: ``structure`` is the table with it, ``said`` what a stamp says."""

    structure: Structure
    alteration: Alteration | None = None
    said: tuple[str, ...] = ()


def follow(lake: DirectLake, change: DestinationChange, look: CommitBasis) -> FollowedStructure:
    """What is to become of the table's columns. Raises ``Declined`` where the extension has to change anything: a type,
    what is within a column, NOT NULL, a comment, or the default of a column that is there. TLA: ``Evolved``."""
    structure = look.structure
    if change.evolution is None and not change.carries:
        return FollowedStructure(structure)
    carried = terms.due(change, Described(structure.fields, structure.comments))
    steps = _steps(change, structure)
    if not steps:
        decline(ExtensionReason.SCHEMA_CHANGE if carried.clauses else None)
        decline(_refusal(change, structure))
        return FollowedStructure(structure, said=carried.left)
    alteration = _alteration(change, look, steps, carried.clauses)
    made = _structure_after(lake, change, look, alteration)
    decline(ExtensionReason.SCHEMA_CHANGE if _refusal(change, made) is not None else None)
    said = (clause.said for clause in carried.clauses)
    return FollowedStructure(made, alteration, (*evolve.shown(steps), *said, *carried.left))


def _refusal(change: DestinationChange, structure: Structure) -> ExtensionReason | None:
    return structure_refusal(structure, wanted_columns(change), spelled=change.target.is_spelled)


def _steps(change: DestinationChange, structure: Structure) -> tuple[ColumnStep, ...]:
    """What the table lacks of the source's columns; nothing where the lake's owner has added it all."""
    evolution = change.evolution
    if evolution is None:
        return ()
    theirs = whose(structure.fields, evolution.then, evolution.now)
    decline(ExtensionReason.SCHEMA_CHANGE if theirs is None else None)
    try:
        return steps_between(theirs or (), evolution.now)
    except NotFollowed:
        raise Declined(ExtensionReason.SCHEMA_CHANGE) from None


def _alteration(
    change: DestinationChange, look: CommitBasis, steps: Sequence[ColumnStep], clauses: Sequence[Clause]
) -> Alteration:
    """Rows to come may have another default in a new column than older ones: that is how its owner spelled it.

    A table of which DuckLake keeps rows in the catalog gets another place for them there with each alteration."""
    decline(None if never_inlines(look.state.options) else ExtensionReason.SCHEMA_CHANGE)
    now = () if change.evolution is None else change.evolution.now
    defaults = {str(clause.column): clause.value for clause in clauses if clause.kind is TermKind.DEFAULT}
    found = columns.altered(look.structure.fields, steps, now, look.state.last_column)
    found = None if found is None or len(defaults) < len(clauses) else columns.with_defaults(found, defaults)
    if found is None:
        raise Declined(ExtensionReason.SCHEMA_CHANGE)
    return found


def _structure_after(
    lake: DirectLake, change: DestinationChange, look: CommitBasis, alteration: Alteration
) -> Structure:
    """DuckDB is asked how it spells a type only where that is not how it spells the source's."""
    added, known = alteration.added, dict(wanted_columns(change) or ())
    decline(None if lake.instance.texts.hold(lake.con, added) else ExtensionReason.SCHEMA_CHANGE)
    declared = {field.id: field.declared for field in added}
    asked = [field for field in added if known.get(field.name) != field.declared]
    spelled = files.duckdb_types(lake.con, asked) if asked else ()
    declared |= zip((field.id for field in asked), spelled, strict=True)
    return columns.structure_after(look.structure, alteration, look.state.snapshot.id + 1, declared)
