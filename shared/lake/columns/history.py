"""What a table's columns were at each snapshot, and over which ranges they can be followed.

A column is its field id. A column that is dropped and added again under its old name is a new column: existing rows
show its default, whatever files hold of the old one. No row is touched by that, so no change feed reports it.
DuckLake keeps the versions of a column that ended for as long as the table lives, whatever was expired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shared.contracts.errors import ViaduckError
from shared.lake.types import duckdb_type

NO_DEFAULT = "NULL"
"""How DuckLake spells that rows to come have no default, and nothing else."""


@dataclass(frozen=True)
class Terms:
    """What a column asks of rows to come: a value, where it is ``required`` (NOT NULL), and else its ``default``, as
    text; where that is ``computed`` it is an expression and no value."""

    required: bool = False
    default: str | None = None
    computed: bool = False


NO_TERMS = Terms()


def terms_of(nulls_allowed: object, default: object, kind: object) -> Terms:
    """By what a catalog says in ``nulls_allowed``, ``default_value`` and ``default_value_type``. SQLite's truths
    are numbers, or texts of them."""
    text = None if default is None or default == NO_DEFAULT else str(default)
    return Terms(str(nulls_allowed).lower() in ("0", "false"), text, text is not None and kind != "literal")


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
    terms: Terms = NO_TERMS

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
    """What rows show that are older than the column."""
    terms: Terms = NO_TERMS

    @cached_property
    def declared(self) -> str:
        """The type as DuckDB declares it."""
        return duckdb_type(self.type, [(field.name, field.declared) for field in self.fields])

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it the column that it is; what it asks of rows to come is none of it."""
        return self.id, self.name, self.type, tuple(field.identity for field in self.fields)


DEEPEST = 100
"""Fields within fields. A catalog may say that a field is its own parent."""

Versions = Sequence[ColumnVersion]
"""Of one table, in the order of its columns."""

Shape = tuple[int, int | None, str, str]
"""What makes a version of a column another one than its predecessor."""


def reshapings(versions: Versions, at: int) -> tuple[int, ...]:
    """The snapshots up to ``at`` that made the columns what they are, oldest first; the table's birth is the first.

    A later default is no part of that. A table may have changed a thousand times, and each poll asks: one pass.
    """
    came, went = defaultdict[int, set[Shape]](set), defaultdict[int, set[Shape]](set)
    for each in versions:
        shape = (each.id, each.parent, each.name, each.type)
        came[each.begin].add(shape)
        if each.end is not None:
            went[each.end].add(shape)
    points = {point for point in (*came, *went) if point <= at}
    return tuple(sorted(point for point in points if came[point] != went[point]))


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
    return Field(version.id, version.name, version.type, fields, version.default, version.terms)


def changed(versions: Versions, since: int, at: int) -> bool:
    """Whether any version of a column begins or ends after ``since`` and not after ``at``."""
    return any(since < point <= at for each in versions for point in (each.begin, each.end) if point is not None)


def terms_changed(versions: Versions, since: int, at: int) -> bool:
    """Whether a column that was there at ``since`` asks something else of rows to come."""
    if not changed(versions, since, at):
        return False
    then = {field.id: field.terms for field in fields_at(versions, since)}
    return any(then.get(field.id, field.terms) != field.terms for field in fields_at(versions, at))


def grew_only(versions: Versions, since: int, at: int) -> bool:
    """Whether the columns at ``since`` are still what they were, in the same order; others may have come after them."""
    if not changed(versions, since, at):
        return True
    then, now = fields_at(versions, since), fields_at(versions, at)
    return [field.identity for field in then] == [field.identity for field in now[: len(then)]]


def what_became_of(old: Field, now: Sequence[Field]) -> str | None:
    """What happened to a column, by its name; None if it is what it was."""
    here = next((field for field in now if field.id == old.id), None)
    another = any(field.name.lower() == old.name.lower() and field.id != old.id for field in now)
    if here is None:
        return f"the column {old.name} was dropped" + (" and another one of that name added" if another else "")
    if here.name != old.name:
        taken = ", and another one has its name" if another else ""
        return f"the column {old.name} was renamed to {here.name}{taken}"
    return None
