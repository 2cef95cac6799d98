"""What is wrong with a destination's table that has not the columns which it should have, or is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.catalog.reader import Column
from shared.lake.columns.evolution import ColumnStep, steps_between
from shared.lake.columns.history import Field
from shared.lake.columns.owners import Altered
from shared.lake.columns.step_statements import statement_of
from shared.lake.sql import path

MOST_STATEMENTS = 10
"""That a hint holds."""

EQUAL = "make the two tables' columns equal in name, type and order, or reseed the destination, then resume"
ONLY_RESEED = "reseed the destination: no statement makes its columns what they were and keeps every value"


def table_gone(destination: Destination) -> DestinationError:
    return DestinationError(
        "table_mismatch",
        f"the table {destination.schema_name}.{destination.table} is gone from the destination",
        "reseed the destination, which creates the table again",
    )


def differs(
    kind: str,
    destination: Destination,
    have: Sequence[Column],
    wanted: Sequence[Column],
    altered: Altered | None = None,
) -> DestinationError:
    """What is wrong with a table that has other columns than it should have. ``altered`` tells what its owner did."""
    return DestinationError(
        kind,
        f"the columns of {destination.schema_name}.{destination.table} are not the source's:"
        f" {_difference(have, wanted)}",
        _remedy(destination, have, wanted, altered),
    )


def _remedy(destination: Destination, have: Sequence[Column], wanted: Sequence[Column], altered: Altered | None) -> str:
    """The statements that make them equal, where these are known and keep every value."""
    places = _by_name(have, wanted) if altered is None else _by_id(altered, wanted)
    if places is None:
        return EQUAL
    kept = [place for place in places if place is not None]
    both = [(column, wanted[place]) for column, place in zip(have, places, strict=True) if place is not None]
    others = [(one.type, other.type) for one, other in both if one.type != other.type]
    if any(one.endswith((")", "]")) and other.endswith((")", "]")) for one, other in others):
        return EQUAL  # fields may have other names alone
    if (
        others
        or kept != list(range(len(kept)))
        or (altered is not None and len(kept) < min(len(altered.left), len(wanted)))
    ):
        return ONLY_RESEED
    table = path(destination.schema_name, destination.table)
    statements = [f"{statement_of(step, table)};" for step in _steps(have, wanted, places)]
    if not kept or not 0 < len(statements) <= MOST_STATEMENTS:
        return EQUAL
    return f"in the destination's lake: {' '.join(statements)} then resume"


def _steps(have: Sequence[Column], wanted: Sequence[Column], places: Sequence[int | None]) -> tuple[ColumnStep, ...]:
    then = [Field(number, column.name, "", ()) for number, column in enumerate(have)]
    now = [replace(then[number], name=wanted[place].name) for number, place in enumerate(places) if place is not None]
    return steps_between(then, now)


def _by_id(altered: Altered, wanted: Sequence[Column]) -> list[int | None] | None:
    """Which of the wanted columns each of the table's is, as Viaduck left them in this order; None for an added one."""
    left = [field.name.lower() for field in altered.left][: len(wanted)]
    if left != [column.name.lower() for column in wanted[: len(left)]]:
        return None
    places = {field.id: place for place, field in enumerate(altered.left[: len(wanted)])}
    return [places.get(field.id) for field in altered.have]


def _by_name(have: Sequence[Column], wanted: Sequence[Column]) -> list[int | None] | None:
    """The same by names alone, where none is missing: another one may be the missing one, with its values."""
    places = {column.name: place for place, column in enumerate(wanted)}
    found = [places.get(column.name) for column in have]
    return found if len(places.keys() & {column.name for column in have}) == len(wanted) else None


def how_to_release(destination: Destination, by: Literal["PARTITIONED", "SORTED"]) -> str:
    """How the owner of the lake lets a column go that its table is arranged by."""
    table = path(destination.schema_name, destination.table)
    return f"in the destination's lake: ALTER TABLE {table} RESET {by} BY; then resume"


def _difference(have: Sequence[Column], wanted: Sequence[Column]) -> str:
    """The first place where two lists of columns part."""
    for number, wants in enumerate(wanted):
        if number >= len(have):
            return f"column {number + 1}, {wants.name} {wants.type}, is missing"
        if (have[number].name, have[number].type) != (wants.name, wants.type):
            found = f"{have[number].name} {have[number].type}"
            return f"column {number + 1} is {found} and should be {wants.name} {wants.type}"
    return f"column {len(wanted) + 1}, {have[len(wanted)].name}, is not in the source"
