"""Changes of the fields of a nested column: each as SQL for the lake, and as its effect on the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.world.duck import name
from tests.world.kinds import SCALAR, Declared, Field, Kind, Many, Path, Struct, declared, structs
from tests.world.model import Model
from tests.world.rows import Column

WIDER = "BIGINT"


@dataclass(frozen=True)
class _WithinColumn:
    """``column`` by the name that it had first, and the names that lead from there to a struct."""

    column: str
    path: Path

    def _called(self, model: Model, field: str) -> str:
        return name(model.called(self.column), *self.path, field)

    def _change(self, model: Model, change: Callable[[Struct], Struct]) -> None:
        column = model.columns[model.index(self.column)]
        nested = _type(column)
        kind = _with_struct(nested.kind, self.path, change)
        model.change_column(self.column, Column(column.name, Declared.of(kind, nested.used)))


@dataclass(frozen=True)
class AddField(_WithinColumn):
    field: Field

    def sql(self, table: str, model: Model) -> str:
        default = "" if self.field.default is None else f" DEFAULT {self.field.default}"
        added = self._called(model, self.field.name)
        return f"ALTER TABLE {table} ADD COLUMN {added} {declared(self.field.kind)}{default}"

    def apply(self, model: Model) -> None:
        self._change(model, lambda struct: Struct((*struct.fields, self.field)))


@dataclass(frozen=True)
class DropField(_WithinColumn):
    field: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} DROP COLUMN {self._called(model, self.field)}"

    def apply(self, model: Model) -> None:
        self._change(model, lambda struct: _without(struct, self.field))


@dataclass(frozen=True)
class ReplaceField(_WithinColumn):
    """A field dropped and another one of its name added: what it held is gone."""

    field: Field

    def sql(self, table: str, model: Model) -> str:
        """Both statements, of one transaction."""
        dropped = DropField(self.column, self.path, self.field.name).sql(table, model)
        return f"{dropped};{AddField(self.column, self.path, self.field).sql(table, model)}"

    def apply(self, model: Model) -> None:
        self._change(model, lambda struct: Struct((*_without(struct, self.field.name).fields, self.field)))


@dataclass(frozen=True)
class RenameField(_WithinColumn):
    field: str
    to: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} RENAME COLUMN {self._called(model, self.field)} TO {name(self.to)}"

    def apply(self, model: Model) -> None:
        def renamed(struct: Struct) -> Struct:
            return Struct(tuple(replace(f, name=self.to) if f.name == self.field else f for f in struct.fields))

        self._change(model, renamed)


@dataclass(frozen=True)
class WidenFields:
    """Every scalar of a column becomes wider, by the type of the whole column."""

    column: str

    def sql(self, table: str, model: Model) -> str:
        wider = declared(_wider(_type(model.columns[model.index(self.column)]).kind))
        return f"ALTER TABLE {table} ALTER COLUMN {name(model.called(self.column))} SET DATA TYPE {wider}"

    def apply(self, model: Model) -> None:
        column = model.columns[model.index(self.column)]
        nested = _type(column)
        model.change_column(self.column, Column(column.name, Declared.of(_wider(nested.kind), nested.used)))


FieldChange = AddField | DropField | ReplaceField | RenameField | WidenFields


def random_change(rng: Random, origin: str, nested: Declared) -> FieldChange:
    """A change of a field somewhere in a column's type. No struct becomes empty: nobody could read the table then. A
    struct within a value keeps its first field, by which DuckLake tells one that is NULL (H28)."""
    path, struct = rng.choice(list(structs(nested.kind)))
    number = nested.used + 1
    one = rng.choice(struct.fields)
    changes: list[FieldChange] = [
        AddField(origin, path, Field(number, f"f{number}", SCALAR, rng.choice([None, "7"]))),
        *(
            []
            if _has_default(one.kind) or one.default is not None
            else [RenameField(origin, path, one.name, _free_name(struct, number))]
        ),
        *([] if _has_default(nested.kind) else [WidenFields(origin)]),
    ]
    if len(struct.fields) > 1:
        gone = struct.fields[1] if path and one is struct.fields[0] else one
        replaced = ReplaceField(origin, path, Field(number, gone.name, SCALAR))
        changes += [replaced, replaced, DropField(origin, path, gone.name)]
    return rng.choice(changes)


def _free_name(struct: Struct, number: int) -> str:
    """A name that no field of a struct has; a renaming uses up no number."""
    taken = {field.name for field in struct.fields}
    return next(free for n in itertools.count(number) if (free := f"r{n}") not in taken)


def _has_default(kind: Kind) -> bool:
    """DuckLake forgets the default of a field that is renamed or becomes wider with its column (H26)."""
    return any(field.default is not None for _, struct in structs(kind) for field in struct.fields)


def _with_struct(kind: Kind, path: Path, change: Callable[[Struct], Struct]) -> Kind:
    if isinstance(kind, Many):
        return Many(_struct(_with_struct(kind.one, path[1:], change)), kind.is_map)
    if not path:
        return change(_struct(kind))
    fields = _struct(kind).fields
    return Struct(
        tuple(replace(f, kind=_with_struct(f.kind, path[1:], change)) if f.name == path[0] else f for f in fields)
    )


def _without(struct: Struct, gone: str) -> Struct:
    return Struct(tuple(each for each in struct.fields if each.name != gone))


def _wider(kind: Kind) -> Kind:
    if isinstance(kind, Many):
        return Many(_struct(_wider(kind.one)), kind.is_map)
    if isinstance(kind, Struct):
        return Struct(tuple(replace(each, kind=_wider(each.kind)) for each in kind.fields))
    return WIDER


def _struct(kind: Kind) -> Struct:
    if not isinstance(kind, Struct):
        raise TypeError(f"{declared(kind)} has no fields")
    return kind


def _type(column: Column) -> Declared:
    if not isinstance(column.type, Declared):
        raise TypeError(f"{column.name} has no fields: it is {column.type}")
    return column.type
