"""The types of Avro that are not composed of others: the columns that take their values, and how these are spelled.

A value is spelled so that a column of its own type takes it exactly (``conversions``), and any that the type can't hold
as the plain number or bytes, which no such column takes: it is rescued.
"""

from __future__ import annotations

import math
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

Spell = Callable[[Any], Any]
Meaning = Callable[["Node", Mapping[str, Any]], "Node"]
"""What a type's other properties make of it."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS_BEFORE_EPOCH = date(1970, 1, 1).toordinal()
DAY_US = 86_400_000_000
MOST_DIGITS = 38
"""Of a column's DECIMAL."""

TIMESTAMP, TIMESTAMPTZ = "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class Node:
    """A type: as fastavro reads it, how its values are spelled (None: as they are), the column that takes them, and
    whether each value takes a byte at least."""

    schema: Any
    column: str
    spell: Spell | None = None
    takes_bytes: bool = True
    fields: Mapping[str, Node] = field(default_factory=dict)
    """Of a record, by name."""

    @property
    def columns(self) -> dict[str, str]:
        """Of a record: the types of the columns that take its fields."""
        return {name: node.column for name, node in self.fields.items() if node.column != "NULL"}


def in_base64(value: bytes) -> Any:
    """Never taken for a text."""
    return {"$base64": b64encode(value).decode()}


def spelled_double(value: float) -> Any:
    """JSON has no other numbers."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


SIMPLE = {
    "null": Node("null", "NULL", takes_bytes=False),
    "boolean": Node("boolean", "BOOLEAN"),
    "int": Node("int", "BIGINT"),
    "long": Node("long", "BIGINT"),
    "float": Node("float", "DOUBLE", spelled_double),
    "double": Node("double", "DOUBLE", spelled_double),
    "string": Node("string", "VARCHAR"),
    "bytes": Node("bytes", "BLOB", in_base64),
}


def logical(node: Node, given: Mapping[str, Any]) -> Node:
    """The node with its logical type, where that is known and valid; else as it is, as Avro demands."""
    name, kind = given.get("logicalType"), kind_of(node)
    if name == "decimal" and kind in ("bytes", "fixed"):
        return decimal(node, given.get("precision"), given.get("scale", 0))
    if name == "uuid" and kind == "string":
        return replace(node, column="UUID")
    if name == "uuid" and kind == "fixed" and node.schema["size"] == 16:
        return replace(node, column="UUID", spell=lambda value: str(uuid.UUID(bytes=value)))
    if isinstance(name, str) and (name, kind) in TIMES and node.spell is None:
        column, spell = TIMES[name, kind]
        return replace(node, column=column, spell=spell)
    return node


def kind_of(node: Node) -> str:
    if isinstance(node.schema, list):
        return "union"
    return node.schema if isinstance(node.schema, str) else str(node.schema["type"])


def decimal(node: Node, precision: Any, scale: Any) -> Node:
    """Of more digits than a column has it is a text. The node as it is where the two are none of a decimal."""
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or not precision:
        return node
    column = f"DECIMAL({precision:d},{scale:d})" if precision <= MOST_DIGITS else "VARCHAR"
    return replace(node, column=column, spell=lambda value: spelled_decimal(value, scale))


def spelled_decimal(value: bytes, scale: int) -> str:
    """Of the bytes of a signed integer and the number of its digits behind the point."""
    unscaled = int.from_bytes(value, "big", signed=True)
    digits = str(abs(unscaled)).zfill(scale + 1)
    whole, cut = (digits[:-scale], "." + digits[-scale:]) if scale else (digits, "")
    return f"{'-' if unscaled < 0 else ''}{whole}{cut}"


def _date(days: int) -> Any:
    ordinal = DAYS_BEFORE_EPOCH + days
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else days


def _time(unit_us: int) -> Spell:
    def spell(value: int) -> Any:
        at = value * unit_us
        return (datetime.min + timedelta(microseconds=at)).time().isoformat() if 0 <= at < DAY_US else value

    return spell


def _timestamp(units_per_s: int, *, zoned: bool) -> Spell:
    """Of nanoseconds as many digits as they have."""

    def spell(value: int) -> Any:
        us, rest = divmod(value * 1_000_000, units_per_s)
        try:
            found = EPOCH + timedelta(microseconds=us)
        except OverflowError:
            return value
        nanoseconds = rest * 1_000 // units_per_s
        text = found.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}{f'{nanoseconds:03d}' if nanoseconds else ''}{'+00:00' if zoned else ''}"

    return spell


TIMES: dict[tuple[str, str], tuple[str, Spell]] = {
    ("date", "int"): ("DATE", _date),
    ("time-millis", "int"): ("TIME", _time(1_000)),
    ("time-micros", "long"): ("TIME", _time(1)),
    **{
        (f"{prefix}timestamp-{unit}", "long"): (column, _timestamp(per_s, zoned=not prefix))
        for prefix, column in (("", TIMESTAMPTZ), ("local-", TIMESTAMP))
        for unit, per_s in (("millis", 1_000), ("micros", 1_000_000), ("nanos", 1_000_000_000))
    },
}
