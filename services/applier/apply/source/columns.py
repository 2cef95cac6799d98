"""What the columns of a reading are to its destinations: those that tell rows apart, and what became of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import duckdb

from services.applier.apply.source.reading import Reading
from services.applier.model.task import Target
from shared.contracts.errors import DestinationError
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import ItemKind
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.reader import CatalogReader, TableInfo
from shared.lake.columns.evolution import NotFollowed
from shared.lake.columns.followed import ColumnEvolution, evolution, not_followed, terms_are_due
from shared.lake.columns.history import Field
from shared.lake.columns.identity import Identifying
from shared.lake.columns.terms import NO_COMMENTS, Described
from shared.lake.routing_value import not_routed

Targets = Sequence[tuple[int, Target]]
"""By their numbers in a reading."""

Since = Callable[[int, int, EvolutionPolicy], ColumnEvolution | None]
"""What became of the source's columns from one snapshot to another: computed once for all who stand at the same."""


def name_at(table: TableInfo, configured: str, through: int) -> str:
    """The name at ``through`` of the column that the configuration names, which may have been renamed since."""
    column = table.identified(configured)
    if column is None:
        raise DestinationError(
            "schema_change",
            f"the source has no column {configured!r} any more at snapshot {through}",
            "correct routing.field and routing.key_columns, or bring the column back, then resume",
        )
    return column.name


def require_routed(reading: Reading) -> None:
    """Raises ``schema_change`` where no destination can be told by the routing column: it may have come later."""
    why = not_routed(reading.routing, reading.type_of(reading.routing))
    if why is not None:
        raise DestinationError("schema_change", f"{why}, at snapshot {reading.through}", "then resume")


def follow_columns(reading: Reading, targets: Targets, identifying: Identifying) -> None:
    """Note for each target what became of the source's columns, or why that is not followed. TLA: ``ReadColumns``."""
    since = cache(partial(evolution, reading.table.versions, identifying))
    for number, target in targets:
        try:
            found = _evolution_of(target, reading, since)
        except DestinationError as error:
            reading.refused.setdefault(number, error)
        else:
            reading.evolutions |= {} if found is None else {number: found}


def carry_terms(con: duckdb.DuckDBPyConnection, catalog: CatalogReader, reading: Reading, targets: Targets) -> None:
    """Note what the columns ask of rows to come, and for which targets that, or a comment, may be new."""
    table = reading.table
    reading.carrying = frozenset(number for number, target in targets if _is_due(reading, number, target))
    comments = NO_COMMENTS
    if reading.carrying and table.commented > NOT_SEEDED:
        comments = catalog.comments(table.table_id, reading.through)
        positions = {target.item.expected for number, target in targets if number in reading.carrying} - {NOT_SEEDED}
        reading.comments = {position: catalog.comments(table.table_id, position) for position in positions}
    fields = _plain(con, table.fields) if reading.carrying else table.fields
    reading.described = Described(fields, comments)


def _is_due(reading: Reading, number: int, target: Target) -> bool:
    destination, item, table = target.destination, target.item, reading.table
    if not destination.carries_terms:
        return False
    if item.kind is ItemKind.SEED:
        return True
    commented = table.commented if destination.carries_comments else NOT_SEEDED
    followed = reading.evolutions.get(number)
    return terms_are_due(table.versions, followed, item.expected, reading.through, commented)


def _plain(con: duckdb.DuckDBPyConnection, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """A default that its column's type can't be made of is an expression, whatever the catalog calls it."""
    asked = [field for field in fields if field.terms.default is not None and not field.terms.computed]
    if not asked:
        return fields
    tried = ", ".join(f"TRY_CAST(? AS {field.declared}) IS NULL" for field in asked)
    found = con.execute(f"SELECT {tried}", [field.terms.default for field in asked]).fetchall()[0]
    strange = {field.id for field, is_strange in zip(asked, found, strict=True) if is_strange}
    return tuple(
        replace(field, terms=replace(field.terms, computed=True)) if field.id in strange else field for field in fields
    )


def _evolution_of(target: Target, reading: Reading, since: Since) -> ColumnEvolution | None:
    """What became of the source's columns since the destination's position; None for nothing. Raises ``schema_change``
    where they are not followed.

    Columns are compared from the stored position on, not from where the item begins: a change of them touches no row.
    """
    item, policy = target.item, target.destination.policy
    if item.kind is ItemKind.SEED:
        return None
    try:
        return since(item.expected, reading.through, policy)
    except NotFollowed as why:
        raise not_followed(why, item.expected, policy) from None
