"""Random changes of nested columns, and rows that fit them: statements for a lake, whose head is the truth.

Rows of nested columns have no model here; what a destination shows is held against the source's own head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.world.duck import name, quote

SCALARS = ("INTEGER", "VARCHAR")
WIDER = {"INTEGER": "BIGINT"}
KEPT = ("id", "tenant")
"""Columns that rows are told by."""
TENANTS = ("a", "b", "nobody")


@dataclass
class Node:
    """A column or a field. ``kind`` is a scalar type, ``struct``, ``list`` or ``map``; the only field of a list is its
    element, that of a map its value."""

    name: str
    kind: str
    fields: list[Node] = field(default_factory=list)
    keeps: bool = False
    """It is a field with a default, which DuckLake forgets where it is renamed or made wider (H26)."""

    @property
    def declared(self) -> str:
        if self.kind == "struct":
            return "STRUCT(" + ", ".join(f"{name(each.name)} {each.declared}" for each in self.fields) + ")"
        if self.kind == "list":
            return f"{self.fields[0].declared}[]"
        return f"MAP(VARCHAR, {self.fields[0].declared})" if self.kind == "map" else self.kind


class NestedTable:
    """One table's columns as they are now, and what may happen to them next."""

    def __init__(self, rng: Random, table: str) -> None:
        self.rng, self.table, self.numbers = rng, table, itertools.count(1)
        self.required: set[str] = set()
        """Columns that allow no NULL: only of those that never hold one."""
        self.new: list[list[Node]] = []
        """Fields of the structs that a transaction has added: it can't change them rightly itself (H26)."""
        self.columns = [Node("id", "INTEGER"), Node("tenant", "VARCHAR"), Node("n", "INTEGER"),
                        *(self._made(kind, 2) for kind in ("struct", "list", "map"))]  # fmt: skip

    def create(self) -> str:
        return f"CREATE TABLE {self.table} ({', '.join(f'{name(c.name)} {c.declared}' for c in self.columns)})"

    def insert(self, ids: range) -> str:
        rows = ", ".join(f"({', '.join(self._cell(column, number) for column in self.columns)})" for number in ids)
        return f"INSERT INTO {self.table} VALUES {rows}"

    def update(self) -> str:
        column = self.rng.choice(self.columns[1:])
        return f"UPDATE {self.table} SET {name(column.name)} = {self._cell(column, 0)} WHERE {self._some()}"

    def delete(self) -> str:
        return f"DELETE FROM {self.table} WHERE {self._some()}"

    def changes(self, count: int) -> list[str]:
        """Changes of columns or fields, somewhere in the tree, which commit together."""
        self.new = []
        return [self._change() for _ in range(count)]

    def _change(self) -> str:
        level, path = self.rng.choice([each for each in self._levels(self.columns, ()) if not self._is_new(each[0])])
        return self.rng.choice([self._add, self._drop, self._rename, self._replace, self._widen])(level, path)

    def describe(self) -> str:
        """Something else that a column asks of rows to come, or says of itself."""
        column = self.rng.choice(self.columns)
        altered = f"ALTER TABLE {self.table} ALTER COLUMN {name(column.name)}"
        if column.name in KEPT and self.rng.random() < 0.5:
            self.required ^= {column.name}
            return f"{altered} {'SET' if column.name in self.required else 'DROP'} NOT NULL"
        if column.kind in (*SCALARS, "BIGINT") and self.rng.random() < 0.5:
            default = "'7'" if column.kind != "VARCHAR" else quote(self.rng.choice(["", "it's", "NULL?"]))
            return self.rng.choice([f"{altered} DROP DEFAULT", f"{altered} SET DEFAULT {default}"])
        said = self.rng.choice(["NULL", quote(f"it's {next(self.numbers)}")])
        what = self.rng.choice([f"TABLE {self.table}", f"COLUMN {self.table}.{name(column.name)}"])
        return f"COMMENT ON {what} IS {said}"

    def _is_new(self, level: list[Node]) -> bool:
        return any(level is each for each in self.new)

    # -- changes ------------------------------------------------------------------------------------------------------

    def _add(self, level: list[Node], path: tuple[str, ...]) -> str:
        made = self._made(self.rng.choice([*SCALARS, "struct"]), 1)
        level.append(made)
        self.new += [fields for fields, _ in self._within(made, ())]
        default = self.rng.choice(["", " DEFAULT 7" if made.kind == "INTEGER" else ""])
        made.keeps = bool(default and path)
        return f"ALTER TABLE {self.table} ADD COLUMN {name(*path, made.name)} {made.declared}{default}"

    def _drop(self, level: list[Node], path: tuple[str, ...]) -> str:
        free = self._free(level)
        if len(free) < 2:
            return self._add(level, path)
        gone = self.rng.choice(free)
        level.remove(gone)
        return f"ALTER TABLE {self.table} DROP COLUMN {name(*path, gone.name)}"

    def _rename(self, level: list[Node], path: tuple[str, ...]) -> str:
        one = self.rng.choice(self._free(level) or level)
        if one.name in KEPT or one.keeps:
            return self._add(level, path)
        old, one.name = one.name, f"r{next(self.numbers)}"
        return f"ALTER TABLE {self.table} RENAME COLUMN {name(*path, old)} TO {name(one.name)}"

    def _replace(self, level: list[Node], path: tuple[str, ...]) -> str:
        """Another one of its name. Never the only one: DuckLake can't read a table with an empty struct."""
        free = self._free(level)
        if len(free) < 2:
            return self._add(level, path)
        gone = self.rng.choice(free)
        level.remove(gone)
        made = Node(gone.name, self.rng.choice(SCALARS))
        level.append(made)
        column = name(*path, made.name)
        return (
            f"ALTER TABLE {self.table} DROP COLUMN {column}; ALTER TABLE {self.table} ADD COLUMN {column} {made.kind}"
        )

    def _widen(self, level: list[Node], path: tuple[str, ...]) -> str:
        """Fields become wider by the type of the whole column."""
        old = [each for each in self.columns if not any(self._is_new(fields) for fields, _ in self._within(each, ()))]
        old = [each for each in old if not any(node.keeps for node in self._nodes(each))]
        column = self.rng.choice([each for each in old if each.name != "tenant"])
        for node in self._nodes(column):
            node.kind = WIDER.get(node.kind, node.kind)
        return f"ALTER TABLE {self.table} ALTER COLUMN {name(column.name)} SET DATA TYPE {column.declared}"

    def _free(self, level: list[Node]) -> list[Node]:
        return [each for each in level if each.name not in KEPT]

    def _levels(self, fields: list[Node], path: tuple[str, ...]) -> Iterator[tuple[list[Node], tuple[str, ...]]]:
        """The columns, and the fields of every struct, with the path that leads there."""
        yield fields, path
        for each in fields:
            yield from self._within(each, (*path, each.name))

    def _within(self, node: Node, path: tuple[str, ...]) -> Iterator[tuple[list[Node], tuple[str, ...]]]:
        if node.kind == "struct":
            yield from self._levels(node.fields, path)
        elif node.kind in ("list", "map"):
            yield from self._within(node.fields[0], (*path, "element" if node.kind == "list" else "value"))

    def _nodes(self, node: Node) -> Iterator[Node]:
        yield node
        for each in node.fields:
            yield from self._nodes(each)

    def _made(self, kind: str, depth: int) -> Node:
        made = Node(f"c{next(self.numbers)}", kind)
        if kind in ("list", "map"):
            made.fields = [self._made("struct", depth)]
        elif kind == "struct":
            made.fields = [self._made(each, 0) for each in SCALARS]
            made.fields += [self._made("struct", depth - 1)] if depth else []
        return made

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _some(self) -> str:
        return self.rng.choice([f"id % {self.rng.randint(2, 9)} = 0", f"id = {self.rng.randrange(80)}", "tenant = 'a'"])

    def _cell(self, node: Node, number: int) -> str:
        if node.name == "id":
            return str(number)
        if node.name == "tenant":
            return quote(self.rng.choice(TENANTS))
        if self.rng.random() < 0.15:
            return "NULL"
        match node.kind:
            case "struct":
                return "{" + ", ".join(f"{quote(each.name)}: {self._cell(each, 0)}" for each in node.fields) + "}"
            case "list":
                return "[" + ", ".join(self._cell(node.fields[0], 0) for _ in range(self.rng.randint(0, 2))) + "]"
            case "map":
                return f"MAP {{{quote(self.rng.choice('xyz'))}: {self._cell(node.fields[0], 0)}}}"
            case "VARCHAR":
                return quote(self.rng.choice(["", "a", "ä ö", "it's"]))
        return str(self.rng.randrange(100))
