"""What is wrong with a destination's table that has not the columns which it should have, or is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.catalog import Column
from shared.lake.sql import path


def table_gone(destination: Destination) -> DestinationError:
    return DestinationError(
        "table_mismatch",
        f"the table {destination.schema_name}.{destination.table} is gone from the destination",
        "reseed the destination, which creates the table again",
    )


def differs(kind: str, destination: Destination, have: Sequence[Column], wanted: Sequence[Column]) -> DestinationError:
    """What is wrong with a table that has other columns than it should have."""
    return DestinationError(
        kind,
        f"the columns of {destination.schema_name}.{destination.table} are not the source's:"
        f" {_difference(have, wanted)}",
        "make the two tables' columns equal in name, type and order, or reseed the destination, then resume",
    )


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
