"""What users do to the source in a transaction: each as SQL for the lake, and as its effect on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.world.duck import name, quote
from tests.world.fields import FieldChange
from tests.world.model import Model, Where
from tests.world.rows import Cell, Column, Row


def sql_cell(cell: Cell) -> str:
    """A value as a string literal, which takes the type of the column that it meets."""
    return "NULL" if cell is None else quote(cell)


def sql_where(where: Where, model: Model) -> str:
    return " AND ".join(_sql_test(model.called(column), values) for column, values in where.tests) or "true"


def _sql_test(column: str, values: frozenset[Cell]) -> str:
    texts = sorted(value for value in values if value is not None)
    tests = [f"{name(column)} IN ({', '.join(map(quote, texts))})"] if texts else []
    if None in values:
        tests.append(f"{name(column)} IS NULL")
    return f"({' OR '.join(tests)})"


def sql_rows(rows: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(map(sql_cell, row))})" for row in rows)


@dataclass(frozen=True)
class Insert:
    rows: tuple[Row, ...]

    def sql(self, table: str, model: Model) -> str:
        return f"INSERT INTO {table} VALUES {sql_rows(self.rows)}"

    def apply(self, model: Model) -> None:
        for row in self.rows:
            model.insert(row)


@dataclass(frozen=True)
class Delete:
    where: Where

    def sql(self, table: str, model: Model) -> str:
        return (
            f"DELETE FROM {table} WHERE {sql_where(self.where, model)}" if self.where.tests else f"DELETE FROM {table}"
        )

    def apply(self, model: Model) -> None:
        for number in model.matching(self.where):
            model.delete(number)


@dataclass(frozen=True)
class Truncate:
    def sql(self, table: str, model: Model) -> str:
        return f"TRUNCATE {table}"

    def apply(self, model: Model) -> None:
        for number in list(model.rows):
            model.delete(number)


@dataclass(frozen=True)
class Update:
    """Set columns to values."""

    where: Where
    sets: tuple[tuple[str, Cell], ...]

    def sql(self, table: str, model: Model) -> str:
        sets = ", ".join(f"{name(model.called(column))} = {sql_cell(cell)}" for column, cell in self.sets)
        return f"UPDATE {table} SET {sets} WHERE {sql_where(self.where, model)}"

    def apply(self, model: Model) -> None:
        sets = {model.index(column): cell for column, cell in self.sets}
        for number in model.matching(self.where):
            model.replace(number, tuple(sets.get(at, cell) for at, cell in enumerate(model.rows[number])))


@dataclass(frozen=True)
class Touch:
    """An update that changes nothing: a column set to itself."""

    where: Where
    column: str

    def sql(self, table: str, model: Model) -> str:
        column = name(model.called(self.column))
        return f"UPDATE {table} SET {column} = {column} WHERE {sql_where(self.where, model)}"

    def apply(self, model: Model) -> None:
        pass


@dataclass(frozen=True)
class Shift:
    """An integer column moved by a number for many rows at once, keys included; NULL stays NULL."""

    where: Where
    column: str
    by: int

    def sql(self, table: str, model: Model) -> str:
        column = name(model.called(self.column))
        return f"UPDATE {table} SET {column} = {column} + {self.by} WHERE {sql_where(self.where, model)}"

    def apply(self, model: Model) -> None:
        at = model.index(self.column)
        for number in model.matching(self.where):
            row = model.rows[number]
            cell = row[at]
            moved = None if cell is None else str(int(cell) + self.by)
            model.replace(number, (*row[:at], moved, *row[at + 1 :]))


@dataclass(frozen=True)
class Merge:
    """MERGE by some columns: a row that is there is replaced, one that is not there is inserted."""

    by: tuple[str, ...]
    rows: tuple[Row, ...]

    def sql(self, table: str, model: Model) -> str:
        names = [column.name for column in model.columns]
        cast = ", ".join(f"CAST({name(c.name)} AS {c.type}) AS {name(c.name)}" for c in model.columns)
        given = f"(SELECT {cast} FROM (VALUES {sql_rows(self.rows)}) v({', '.join(map(name, names))})) s"
        by = [model.called(key) for key in self.by]
        same = " AND ".join(f"t.{name(key)} IS NOT DISTINCT FROM s.{name(key)}" for key in by)
        sets = ", ".join(f"{name(c)} = s.{name(c)}" for c in names if c not in by)
        values = ", ".join(f"s.{name(c)}" for c in names)
        return (
            f"MERGE INTO {table} t USING {given} ON {same} WHEN MATCHED THEN UPDATE SET {sets}"
            f" WHEN NOT MATCHED THEN INSERT VALUES ({values})"
        )

    def apply(self, model: Model) -> None:
        for row in self.rows:
            found = model.matching(Where.equal(self.by, [row[model.index(key)] for key in self.by]))
            for number in found:
                model.replace(number, row)
            if not found:
                model.insert(row)


@dataclass(frozen=True)
class AddColumn:
    """A new column at the end; rows that are there show its default. ``origin`` is what it is known by."""

    column: Column
    default: Cell = None
    origin: str | None = None

    def sql(self, table: str, model: Model) -> str:
        default = "" if self.default is None else f" DEFAULT {quote(self.default)}"
        return f"ALTER TABLE {table} ADD COLUMN {name(self.column.name)} {self.column.type}{default}"

    def apply(self, model: Model) -> None:
        model.add_column(self.column, self.default, self.origin)


@dataclass(frozen=True)
class DropColumn:
    column: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} DROP COLUMN {name(model.called(self.column))}"

    def apply(self, model: Model) -> None:
        model.drop_column(self.column)


@dataclass(frozen=True)
class ReplaceColumn:
    """A column dropped and another one of its name added: what it held is gone."""

    column: str
    default: Cell = None

    def sql(self, table: str, model: Model) -> str:
        """Both statements, of one transaction."""
        added = AddColumn(model.columns[model.index(self.column)], self.default)
        return f"{DropColumn(self.column).sql(table, model)};{added.sql(table, model)}"

    def apply(self, model: Model) -> None:
        model.replace_column(self.column, self.default)


@dataclass(frozen=True)
class RenameColumn:
    column: str
    to: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} RENAME COLUMN {name(model.called(self.column))} TO {name(self.to)}"

    def apply(self, model: Model) -> None:
        model.change_column(self.column, Column(self.to, model.columns[model.index(self.column)].type))


@dataclass(frozen=True)
class WidenColumn:
    column: str
    type: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} ALTER COLUMN {name(model.called(self.column))} SET DATA TYPE {self.type}"

    def apply(self, model: Model) -> None:
        model.change_column(self.column, Column(model.called(self.column), self.type))


@dataclass(frozen=True)
class SetDefault:
    """What rows to come have in a column that they do not name; rows of these histories name them all."""

    column: str
    default: Cell

    def sql(self, table: str, model: Model) -> str:
        what = "DROP DEFAULT" if self.default is None else f"SET DEFAULT {quote(self.default)}"
        return f"ALTER TABLE {table} ALTER COLUMN {name(model.called(self.column))} {what}"

    def apply(self, model: Model) -> None:
        pass


@dataclass(frozen=True)
class CommentOn:
    column: str
    comment: str | None

    def sql(self, table: str, model: Model) -> str:
        return f"COMMENT ON COLUMN {table}.{name(model.called(self.column))} IS {sql_cell(self.comment)}"

    def apply(self, model: Model) -> None:
        pass


@dataclass(frozen=True)
class SetNotNull:
    column: str
    required: bool

    def sql(self, table: str, model: Model) -> str:
        what = "SET" if self.required else "DROP"
        return f"ALTER TABLE {table} ALTER COLUMN {name(model.called(self.column))} {what} NOT NULL"

    def apply(self, model: Model) -> None:
        known = {model.ids[model.index(self.column)]}
        model.required = model.required | known if self.required else model.required - known


@dataclass(frozen=True)
class RenameTable:
    """To its other name, or back."""

    to: str

    def sql(self, table: str, model: Model) -> str:
        return f"ALTER TABLE {table} RENAME TO {name(self.to)}"

    def apply(self, model: Model) -> None:
        model.renamed = not model.renamed


Terms = SetDefault | CommentOn | SetNotNull | RenameTable
"""What changes no row and no column, and is carried with the next rows."""

ColumnChange = AddColumn | DropColumn | ReplaceColumn | RenameColumn | WidenColumn | FieldChange
Statement = Insert | Delete | Truncate | Update | Touch | Shift | Merge | Terms | ColumnChange


@dataclass(frozen=True)
class Transaction:
    """Statements that commit together, or not at all."""

    statements: tuple[Statement, ...]
    rollback: bool = False
    bare: bool = False
    """Without BEGIN and COMMIT; only ever one statement."""

    def effect(self, model: Model) -> Model:
        """The model after it."""
        if self.rollback:
            return model
        after = model.copy()
        for statement in self.statements:
            statement.apply(after)
        after.commit()
        return after
