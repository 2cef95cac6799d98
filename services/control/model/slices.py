"""What a pipeline's destinations are slices of, as the registry remembers it: by which column, with or without keys.

The registry keeps the column's name as the file had it. A column is its field id, so another name that means the same
column means the same slices.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from shared.config.model import Routing
from shared.contracts.routed_by import RoutedBy

APPENDED, EQUAL = "appended: ", "equal: "


@dataclass(frozen=True)
class Slices:
    """What they are called now, and all that the same ones were, or may be, called: ``names``."""

    name: str
    names: frozenset[str]

    def are(self, one: str, other: str) -> bool:
        """Whether both names are of the same slices."""
        return one == other or {one, other} <= self.names


def slice_name(routing: Routing) -> str:
    """Another routing column makes other slices; and what was only ever appended to does not equal its slice."""
    return name_of(routing.routed_by)


def slices_of(routing: Routing, own_names: Collection[str]) -> Slices:
    """``own_names``: those that mean the routing column, and never meant another one."""
    by = routing.routed_by
    return Slices(name_of(by), frozenset(name_of(by.model_copy(update={"field": each.lower()})) for each in own_names))


def name_of(by: RoutedBy) -> str:
    return f"{APPENDED if by.append_only else EQUAL}{by.field}"


def routed_by(name: str) -> RoutedBy:
    """What slices of that name are routed by."""
    append_only = name.startswith(APPENDED)
    return RoutedBy(field=name.removeprefix(APPENDED if append_only else EQUAL), append_only=append_only)
