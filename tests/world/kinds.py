"""Nested types and values of the model: what a column of one is declared as, and what a cell of it shows.

A value knows its fields by number, whatever they are called. What it shows follows from the type that its column has
then, so a change of a field is a change of the type alone: older rows are shown as the newer type shows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tests.world.duck import quote
from tests.world.rows import Cell

SCALAR = "INTEGER"
MOST_IN_LIST = 2
KEYS = ("x", "y", "z")


@dataclass(frozen=True)
class Field:
    """``number`` tells it from every other field that its column ever had, also from one of its name."""

    number: int
    name: str
    kind: Kind
    default: Cell = None


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Many:
    """A list of structs, or a map from texts to structs."""

    one: Struct
    is_map: bool = False

    @property
    def step(self) -> str:
        """What leads from it to the struct within."""
        return "value" if self.is_map else "element"


Kind = str | Struct | Many
Path = tuple[str, ...]
Value = Cell | Mapping[int, "Value"] | list["Value"] | tuple[tuple[str, "Value"], ...]
"""By kind: a text, fields by number, elements, or entries."""


class Declared(str):
    """A nested type as DuckDB declares it. ``used`` is the highest number that a field of it ever had."""

    kind: Kind
    used: int

    @classmethod
    def of(cls, kind: Kind, used: int = 0) -> Declared:
        made = cls(declared(kind))
        made.kind = kind
        made.used = max(used, *(each.number for _, struct in structs(kind) for each in struct.fields))
        return made


class Nested(str):
    """A cell as DuckDB shows it, which knows its value."""

    value: Value

    @classmethod
    def of(cls, kind: Kind, value: Value) -> Nested | None:
        if value is None:
            return None
        made = cls(shown(kind, value))
        made.value = value
        return made


def declared(kind: Kind) -> str:
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{each.name} {declared(each.kind)}" for each in kind.fields) + ")"
    if isinstance(kind, Many):
        return f"MAP(VARCHAR, {declared(kind.one)})" if kind.is_map else f"{declared(kind.one)}[]"
    return kind


def shown(kind: Kind, value: Value) -> str:
    """The text of a value; a field that came later shows its default."""
    if isinstance(kind, Struct) and isinstance(value, dict):
        cells = (f"{quote(f.name)}: {shown(f.kind, value.get(f.number, f.default))}" for f in kind.fields)
        return "{" + ", ".join(cells) + "}"
    if isinstance(kind, Many) and isinstance(value, tuple):
        return "{" + ", ".join(f"{key}={shown(kind.one, each)}" for key, each in value) + "}"
    if isinstance(kind, Many) and isinstance(value, list):
        return "[" + ", ".join(shown(kind.one, each) for each in value) + "]"
    return "NULL" if value is None else str(value)


def shown_as(cell: Cell, now: str) -> Cell:
    """A cell as it is shown once its column is declared as something else."""
    return Nested.of(now.kind, cell.value) if isinstance(cell, Nested) and isinstance(now, Declared) else cell


def kind_of(declaration: str) -> Kind:
    """What tells a column's type from another one, which may be spelled alike: a field of it was replaced."""
    return declaration.kind if isinstance(declaration, Declared) else declaration


def structs(kind: Kind, path: Path = ()) -> Iterator[tuple[Path, Struct]]:
    """Every struct of a column's type, with the names that lead to it from the column."""
    if isinstance(kind, Struct):
        yield path, kind
        for each in kind.fields:
            yield from structs(each.kind, (*path, each.name))
    elif isinstance(kind, Many):
        yield from structs(kind.one, (*path, kind.step))


def random_type(rng: Random) -> Declared:
    """A struct, or a list or a map of structs, with another struct within: two deep."""
    numbers = itertools.count(1)

    def scalars() -> tuple[Field, ...]:
        return tuple(Field(next(numbers), called, SCALAR) for called in ("a", "b"))

    outer = Struct((*scalars(), Field(next(numbers), "s", Struct(scalars()))))
    kinds: list[Kind] = [outer, outer, Many(outer), Many(outer, is_map=True)]
    return Declared.of(rng.choice(kinds))


def random_cell(rng: Random, kind: Kind) -> Cell:
    return Nested.of(kind, _random_value(rng, kind))


def _random_value(rng: Random, kind: Kind) -> Value:
    if rng.random() < 0.15:
        return None
    if isinstance(kind, Struct):
        return {each.number: _random_value(rng, each.kind) for each in kind.fields}
    if isinstance(kind, Many):
        count = rng.randint(0, MOST_IN_LIST)
        made = [_random_value(rng, kind.one) for _ in range(count)]
        return tuple(zip(rng.sample(KEYS, count), made, strict=True)) if kind.is_map else made
    return str(rng.randrange(100))
