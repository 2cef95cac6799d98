"""What the columns of a reading are to its destinations: those that tell rows apart, and what became of the others."""

from __future__ import annotations

from collections.abc import Sequence

from services.applier.apply.reading import Reading
from services.applier.model.task import Target
from shared.contracts.errors import DestinationError
from shared.contracts.messages import ItemKind
from shared.lake.catalog import TableInfo
from shared.lake.column_identity import Identifying
from shared.lake.evolution import NotFollowed
from shared.lake.followed_columns import Evolution, evolution, not_followed
from shared.lake.routing_value import not_routed


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


def follow_columns(reading: Reading, targets: Sequence[tuple[int, Target]], identifying: Identifying) -> None:
    """Note for each target what became of the source's columns, or why that is not followed. TLA: ``ReadColumns``."""
    for number, target in targets:
        try:
            found = _evolution_of(target, reading, identifying)
        except DestinationError as error:
            reading.refused.setdefault(number, error)
        else:
            reading.evolutions |= {} if found is None else {number: found}


def _evolution_of(target: Target, reading: Reading, identifying: Identifying) -> Evolution | None:
    """What became of the source's columns since the destination's position; None for nothing. Raises ``schema_change``
    where they are not followed.

    Columns are compared from the stored position on, not from where the item begins: a change of them touches no row.
    """
    item, policy = target.item, target.destination.policy
    if item.kind is ItemKind.SEED:
        return None
    try:
        return evolution(reading.table.versions, identifying, item.expected, reading.through, policy)
    except NotFollowed as why:
        raise not_followed(why, item.expected, policy) from None
