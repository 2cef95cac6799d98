"""Which column of a destination's table is which of the source's, and what it takes to follow the source: values alone.

As the appliers find it: the table has the columns that the source had at the destination's position, so whose is whose
is known by their order; or its owner has already done what is to be done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.messages import Destination, Problem
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.arrangement import UNARRANGED, Arrangement
from shared.lake.catalog.reader import Column
from shared.lake.checks.table_mismatch import differs, how_to_release, table_gone
from shared.lake.columns.evolution import ColumnStep, NotFollowed, StepKind, steps_between
from shared.lake.columns.followed import ColumnEvolution, evolution, not_followed, terms_are_due, whose
from shared.lake.columns.history import Field, Versions, fields_at
from shared.lake.columns.identity import Identifying
from shared.lake.columns.owners import Altered, require_kept
from shared.lake.columns.terms import NO_COMMENTS, Comments, Described, to_carry
from shared.lake.sql import ident


@dataclass(frozen=True)
class Table:
    """A destination's table as its own catalog has it; without ``fields`` it is not there."""

    fields: tuple[Field, ...] = ()
    arrangement: Arrangement = UNARRANGED
    comments: Comments = NO_COMMENTS
    altered: Altered | None = None
    """What the lake's owner has made of the columns since the last commit to them."""


NO_TABLE = Table()


@dataclass(frozen=True)
class FollowingPlan:
    """``ids``: the source's field id of each of the table's, nested ones too; empty where that is not known.
    ``steps`` in words, in order; none where nothing is to be done, or where it is ``refused``."""

    ids: Mapping[int, int]
    steps: tuple[str, ...] = ()
    refused: Problem | None = None


@dataclass(frozen=True)
class SourceColumns:
    """Every version of the source's columns; ``comments`` at its head and at the destination's position, and when the
    newest one was changed."""

    versions: Versions
    head: int
    comments: Comments = NO_COMMENTS
    comments_before: Comments = NO_COMMENTS
    commented: int = NOT_SEEDED


def following(
    source: SourceColumns, identifying: Identifying, position: int, destination: Destination, table: Table
) -> FollowingPlan:
    """What a table at ``position`` needs to have the source's columns at its head."""
    versions, head = source.versions, source.head
    then, now = fields_at(versions, position), fields_at(versions, head)
    theirs = whose(table.fields, then, now)
    ids = dict(_pairs(table.fields, theirs or ()))
    try:
        followed = evolution(versions, identifying, position, head, destination.policy)
        steps = _steps(destination, table, theirs, then, now)
        return FollowingPlan(ids, (*steps, *_terms(source, position, destination, table, theirs or (), followed)))
    except NotFollowed as why:
        return FollowingPlan(ids, refused=not_followed(why, position, destination.policy).problem())
    except ViaduckError as error:
        return FollowingPlan(ids, refused=error.problem())


def _terms(
    source: SourceColumns,
    position: int,
    destination: Destination,
    table: Table,
    theirs: Sequence[Field],
    followed: ColumnEvolution | None,
) -> tuple[str, ...]:
    """What the next transaction makes of NOT NULL, defaults and comments."""
    commented = source.commented if destination.carries_comments else NOT_SEEDED
    if not destination.carries_terms or not terms_are_due(source.versions, followed, position, source.head, commented):
        return ()
    comments = source.comments if destination.carries_comments else None
    wanted = Described(fields_at(source.versions, source.head), comments)
    carried = to_carry(Described(table.fields, table.comments), theirs, wanted, source.comments_before)
    return (*(clause.said for clause in carried.clauses), *carried.left)


def _steps(
    destination: Destination,
    table: Table,
    theirs: Sequence[Field] | None,
    then: Sequence[Field],
    now: Sequence[Field],
) -> tuple[str, ...]:
    """Raises what the destination would park for."""
    if not table.fields:
        raise table_gone(destination)
    if theirs is None:
        raise differs("table_mismatch", destination, _columns(table.fields), _columns(then), table.altered)
    require_kept(destination, table.altered, ColumnEvolution(tuple(then), tuple(now), ()), ())
    steps = steps_between(theirs, now)
    _require_released(destination, table, theirs, steps)
    return tuple(step.said for step in steps if step.said)


def _pairs(have: Sequence[Field], theirs: Sequence[Field]) -> Iterator[tuple[int, int]]:
    for mine, its in zip(have, theirs, strict=False):
        yield mine.id, its.id
        yield from _pairs(mine.fields, its.fields)


def _require_released(
    destination: Destination, table: Table, theirs: Sequence[Field], steps: Sequence[ColumnStep]
) -> None:
    """Raises ``schema_change`` where the table is arranged by a column that goes: DuckLake refuses to drop it."""
    names = {its.id: mine.name for mine, its in zip(table.fields, theirs, strict=False)}
    going = [names[step.column] for step in steps if step.kind is StepKind.DROP and step.column in names]
    partitions = {name.lower() for _, name in table.arrangement.partitions}
    sorted_by = {expression.lower() for expression, _, _ in table.arrangement.sort_keys}
    for name in going:
        where = f"the table {destination.schema_name}.{destination.table}"
        if name.lower() in partitions:
            said = f"{where} is partitioned by the column {name}, which the source has dropped"
            raise DestinationError("schema_change", said, how_to_release(destination, "PARTITIONED"))
        if {name.lower(), ident(name).lower()} & sorted_by:
            said = f"{where} is sorted by the column {name}, which the source has dropped"
            raise DestinationError("schema_change", said, how_to_release(destination, "SORTED"))


def _columns(fields: Sequence[Field]) -> list[Column]:
    return [Column(field.name, field.declared) for field in fields]
