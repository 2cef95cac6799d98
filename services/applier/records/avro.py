"""Avro in binary becomes the fields that a value in JSON would have; logical types as texts that convert exactly.

A schema is written again before it is given to fastavro: without logical types, whose readers round, overflow or guess;
and with each branch of a wider union as a record of one field, which is encoded alike and tells which branch it was.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import fastavro

from services.applier.records.avro_types import SIMPLE, Meaning, Node, Spell, in_base64, logical
from services.applier.records.decoder import Undecodable, UnusableSchema
from shared.kafka.schema_registry import RegisteredSchema

MOST_TYPES, DEEPEST = 10_000, 64
"""Of a schema with everything that it refers to written out."""

MALFORMED = (EOFError, IndexError, ValueError, KeyError, StopIteration, OverflowError, TypeError, MemoryError)
"""What fastavro raises for bytes that are no value of the schema."""


class AvroDecoder:
    """Values of one schema. ``columns`` are types by the names of the fields, and ``columns_within`` of the fields of
    a field, where these are records."""

    def __init__(self, node: Node) -> None:
        self._schema = fastavro.parse_schema(node.schema)
        self._spell = node.spell
        self.columns = node.columns
        self.columns_within = {name: each.columns for name, each in node.fields.items()}

    def decode(self, data: bytes) -> Any:
        """What ``json`` can spell. Raises ``Undecodable``."""
        stream = io.BytesIO(data)
        try:
            found = fastavro.schemaless_reader(stream, self._schema, None)
            shown = found if self._spell is None else self._spell(found)
        except MALFORMED as error:
            raise Undecodable(type(error).__name__) from None
        if stream.tell() != len(data):
            raise Undecodable("bytes are left over")
        return shown


@lru_cache(maxsize=256)
def avro_decoder(schema: RegisteredSchema, meaning: Meaning = logical) -> AvroDecoder:
    """Raises ``UnusableSchema``."""
    if schema.kind != "AVRO":
        raise UnusableSchema(f"it is {schema.kind[:20]}, and not AVRO")
    rewriting = _Rewriting(meaning)
    try:
        for _, text in schema.references:
            rewriting.node(json.loads(text), "", 0)
        return AvroDecoder(rewriting.node(json.loads(schema.text), "", 0))
    except UnusableSchema:
        raise
    except RecursionError:
        raise UnusableSchema("it is nested too deeply") from None
    except Exception as error:  # of any kind: what is wrong with a text from outside makes it no schema
        raise UnusableSchema(f"it is no schema in Avro ({type(error).__name__})") from None


@dataclass
class _Rewriting:
    """One schema with its references; named types are written out wherever they are named."""

    meaning: Meaning
    named: dict[str, tuple[Any, str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    count: int = 0

    def node(self, given: Any, space: str, depth: int) -> Node:
        self.count += 1
        if self.count > MOST_TYPES or depth > DEEPEST:
            raise UnusableSchema("it is too large, or nested too deeply")
        if isinstance(given, list):
            return self._union([self.node(each, space, depth + 1) for each in given])
        if isinstance(given, str):
            return SIMPLE[given] if given in SIMPLE else self._reference(given, space, depth)
        kind = given["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(given, space, depth)
        if kind == "array":
            return self._array(self.node(given["items"], space, depth + 1))
        if kind == "map":
            return _mapped(self.node(given["values"], space, depth + 1))
        return self.meaning(self.node(kind, space, depth + 1), given)

    def _reference(self, name: str, space: str, depth: int) -> Node:
        for full in (name if "." in name else f"{space}.{name}".lstrip("."), name):
            if full in self.named:
                given, within = self.named[full]
                return self._named(full, given, within, depth)
        raise UnusableSchema(f"it has no type {name[:80]!r}")

    def _defined(self, given: Mapping[str, Any], space: str, depth: int) -> Node:
        name = given["name"]
        if "." in name:
            full, within = name, name.rpartition(".")[0]
        else:
            within = given.get("namespace", space) or ""
            full = f"{within}.{name}".lstrip(".")
        self.named[full] = given, within
        return self._named(full, given, within, depth)

    def _named(self, full: str, given: Mapping[str, Any], space: str, depth: int) -> Node:
        if full in self.open:
            raise UnusableSchema(f"the type {full[:80]!r} refers to itself")
        self.open.append(full)
        try:
            kind = given["type"]
            if kind == "enum":
                return _enum(given["symbols"])
            if kind == "fixed":
                if given["size"] < 0:
                    raise UnusableSchema("a type has less than no bytes")
                fixed = {"type": "fixed", "name": self._fresh(), "size": given["size"]}
                return self.meaning(Node(fixed, "BLOB", in_base64, takes_bytes=given["size"] > 0), given)
            fields = [(each["name"], self.node(each["type"], space, depth + 1)) for each in given["fields"]]
            return self.meaning(self._record(fields), given)
        finally:
            self.open.pop()

    def _record(self, fields: Sequence[tuple[str, Node]]) -> Node:
        spells = [(name, node.spell) for name, node in fields if node.spell is not None]

        def spell(value: dict[str, Any]) -> dict[str, Any]:
            for name, each in spells:
                value[name] = each(value[name])
            return value

        schema = {"type": "record", "name": self._fresh(), "fields": [{"name": n, "type": f.schema} for n, f in fields]}
        takes_bytes = any(node.takes_bytes for _, node in fields)
        return Node(schema, "JSON", spell if spells else None, takes_bytes, dict(fields))

    def _array(self, items: Node) -> Node:
        """Of items without bytes a few bytes could say that there are any number."""
        if not items.takes_bytes:
            raise UnusableSchema("the items of an array take no bytes")
        spell = None if items.spell is None else _of_items(items.spell)
        return Node({"type": "array", "items": items.schema}, "JSON", spell)

    def _union(self, branches: Sequence[Node]) -> Node:
        values = [branch for branch in branches if branch.schema != "null"]
        if len(values) == 1:
            (only,) = values
            spell = None if only.spell is None else _unless_null(only.spell)
            return Node([branch.schema for branch in branches], only.column, spell, True, only.fields)
        kinds = {branch.column for branch in values}
        schemas = [
            branch.schema if branch.schema == "null" else self._branch(n, branch) for n, branch in enumerate(branches)
        ]
        spells = {f"b{number}": branch.spell for number, branch in enumerate(branches)}

        def spell_branch(value: dict[str, Any] | None) -> Any:
            if value is None:
                return None
            ((name, found),) = value.items()
            own = spells[name]
            return found if own is None else own(found)

        return Node(schemas, kinds.pop() if len(kinds) == 1 else "JSON", spell_branch)

    def _branch(self, number: int, branch: Node) -> Any:
        return {"type": "record", "name": self._fresh(), "fields": [{"name": f"b{number}", "type": branch.schema}]}

    def _fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"


def _enum(given: Any) -> Node:
    """Encoded alike is the number of the symbol, of which fastavro takes negative ones for some of the last."""
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise UnusableSchema("the symbols of an enum are no texts")
    symbols: tuple[str, ...] = tuple(given)

    def spell(number: int) -> str:
        if number < 0:
            raise IndexError(number)
        return symbols[number]

    return Node("int", "VARCHAR", spell)


def _mapped(values: Node) -> Node:
    spell = None if values.spell is None else _of_entries(values.spell)
    return Node({"type": "map", "values": values.schema}, "JSON", spell)


def _of_items(spell: Spell) -> Spell:
    return lambda values: [spell(value) for value in values]


def _of_entries(spell: Spell) -> Spell:
    return lambda found: {name: spell(value) for name, value in found.items()}


def _unless_null(spell: Spell) -> Spell:
    return lambda value: None if value is None else spell(value)
