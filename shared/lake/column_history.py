"""What a table's columns were at each snapshot, and over which ranges they can be followed.

A column is its field id. A column that is dropped and added again under its old name is a new column: existing rows
show its default, whatever files hold of the old one. No row is touched by that, so no change feed reports it.
DuckLake keeps the versions of a column that ended for as long as the table lives, whatever was expired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shared.contracts.errors import DestinationError, ViaduckError
from shared.lake.types import duckdb_type


@dataclass(frozen=True)
class ColumnVersion:
    """A column, or a field within one, as it was from ``begin`` until before ``end``; ``type`` in DuckLake's words."""

    id: int
    parent: int | None
    name: str
    type: str
    default: str | None
    begin: int
    end: int | None

    def is_there(self, at: int) -> bool:
        return self.begin <= at and (self.end is None or self.end > at)


@dataclass(frozen=True)
class Field:
    """A column at one snapshot, with the fields within it. Two are the same column if they are equal."""

    id: int
    name: str
    type: str
    fields: tuple[Field, ...]
    default: str | None = None

    @property
    def declared(self) -> str:
        """The type as DuckDB declares it."""
        return duckdb_type(self.type, [(field.name, field.declared) for field in self.fields])

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it the column that it is; a default that is set later is none of it."""
        return self.id, self.name, self.type, tuple(field.identity for field in self.fields)


@dataclass(frozen=True)
class Break:
    """Positions from ``first`` to ``last`` that columns can't be followed from, and ``why``."""

    first: int
    last: int
    why: str


DEEPEST = 100
"""Fields within fields. A catalog may say that a field is its own parent."""

Versions = Sequence[ColumnVersion]
"""Of one table, in the order of its columns."""


def fields_at(versions: Versions, at: int) -> tuple[Field, ...]:
    """The table's columns at a snapshot, in order."""
    children: dict[int | None, list[ColumnVersion]] = {}
    for version in versions:
        if version.is_there(at):
            children.setdefault(version.parent, []).append(version)
    return tuple(_field(version, children) for version in children.get(None, []))


def _field(version: ColumnVersion, children: Mapping[int | None, list[ColumnVersion]], depth: int = 0) -> Field:
    if depth > DEEPEST:
        raise ViaduckError(
            "lake_incompatible",
            f"a catalog lists a column with more than {DEEPEST} fields one within the other",
            "DuckLake never makes one: correct the catalog, or drop the column",
        )
    fields = tuple(_field(child, children, depth + 1) for child in children.get(version.id, []))
    return Field(version.id, version.name, version.type, fields, version.default)


def broken(versions: Versions, since: int, at: int) -> str | None:
    """Why the columns at ``since`` can't be followed to those at ``at``, the first reason; None if nothing but added
    ones came between."""
    if not any(since < point <= at for each in versions for point in (each.begin, each.end) if point is not None):
        return None
    return _why(fields_at(versions, since), fields_at(versions, at))


def breaks(versions: Versions, at: int) -> tuple[Break, ...]:
    """The older positions from which the columns at snapshot ``at`` can't be followed; none where columns only came."""
    points = {point for each in versions for point in (each.begin, each.end) if point is not None and point <= at}
    if len(points) < 2:
        return ()
    now = fields_at(versions, at)
    found = ((first, end - 1, _why(fields_at(versions, first), now)) for first, end in pairwise(sorted(points)))
    return tuple(Break(first, last, why) for first, last, why in found if why is not None)


def not_followed(why: str, position: int) -> DestinationError:
    """Why a destination at ``position`` parks."""
    return DestinationError(
        "schema_change",
        f"{why}, after snapshot {position} of the source, where this destination is; only added columns are followed",
        "reseed the destination: only that shows in the rows which it has what they show at the source now",
    )


def _why(then: Sequence[Field], now: Sequence[Field]) -> str | None:
    """What happened to the first column that is no longer what it was; None if all are, in the same order."""
    for place, old in enumerate(then):
        new = now[place] if place < len(now) else None
        if new is None or new.identity != old.identity:
            return _what_became_of(old, now)
    return None


def _what_became_of(old: Field, now: Sequence[Field]) -> str:
    here = next((field for field in now if field.id == old.id), None)
    if here is None:
        again = any(field.name.lower() == old.name.lower() for field in now)
        return f"the column {old.name} was dropped" + (" and another one of that name added" if again else "")
    if here.name != old.name:
        return f"the column {old.name} was renamed to {here.name}"
    if here.declared != old.declared:
        return f"the column {old.name} was {old.declared} and is {here.declared} now"
    if here.identity != old.identity:
        return f"a field of the column {old.name} was dropped and another one of that name added"
    return f"the column {old.name} is at another place now"
