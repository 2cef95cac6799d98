"""Rows in the columns of one snapshot, as expressions on the columns of another: a column is mapped by its field id.

DuckLake does the same where it reads a table; what it shows of a range's insertions comes in the columns of the range's
end, and ranges of one reading may end before its own does.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.lake.columns.history import Field
from shared.lake.sql import ident, literal


def columns_as_of(then: Sequence[Field], now: Sequence[Field]) -> str:
    """The columns ``now``, in order and by their names, of rows in the columns ``then``. A column that came later shows
    its default."""
    before = {field.id: field for field in then}
    return ", ".join(f"{_value(field, before.get(field.id))} AS {ident(field.name)}" for field in now)


def _value(now: Field, then: Field | None) -> str:
    return default_of(now) if then is None else _mapped(ident(then.name), then, now, 0)


def default_of(field: Field) -> str:
    """What rows show that are older than a column."""
    value = "NULL" if field.default is None else literal(field.default)
    return f"CAST({value} AS {field.declared})"


def _mapped(value: str, then: Field, now: Field, depth: int) -> str:
    if then.identity == now.identity:
        return value
    one = f"_e{depth:d}"
    match now.type:
        case "struct":
            made = _struct(value, then, now, depth)
        case "list":
            made = f"list_transform({value}, lambda {one}: {_mapped(one, then.fields[0], now.fields[0], depth + 1)})"
        case "map":
            key = _mapped(f"{one}.key", then.fields[0], now.fields[0], depth + 1)
            entry = _mapped(f"{one}.value", then.fields[1], now.fields[1], depth + 1)
            pairs = f"list_transform(map_entries({value}), lambda {one}: {{'key': {key}, 'value': {entry}}})"
            made = f"map_from_entries({pairs})"
        case _:
            return f"CAST({value} AS {now.declared})"
    return f"CASE WHEN {value} IS NOT NULL THEN {made} END"


def _struct(value: str, then: Field, now: Field, depth: int) -> str:
    before = {field.id: field for field in then.fields}
    parts = []
    for field in now.fields:
        old = before.get(field.id)
        part = default_of(field) if old is None else _mapped(f"{value}.{ident(old.name)}", old, field, depth + 1)
        parts.append(f"{ident(field.name)} := {part}")
    return f"struct_pack({', '.join(parts)})"
