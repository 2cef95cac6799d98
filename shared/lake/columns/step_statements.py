"""Steps from a table's columns to others as DuckLake's statements."""

from __future__ import annotations

from shared.lake.columns.evolution import Kind, Step
from shared.lake.sql import ident, literal, path


def statement_of(step: Step, table: str) -> str:
    """``table`` is a quoted path."""
    column = path(*step.path)
    match step.kind:
        case Kind.DROP:
            return f"ALTER TABLE {table} DROP COLUMN {column}"
        case Kind.RENAME:
            return f"ALTER TABLE {table} RENAME COLUMN {column} TO {ident(step.name)}"
        case Kind.WIDEN:
            return f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {step.type}"
        case Kind.ADD if step.default is None:
            return f"ALTER TABLE {table} ADD COLUMN {column} {step.type}"
        case Kind.ADD:
            return f"ALTER TABLE {table} ADD COLUMN {column} {step.type} DEFAULT {literal(step.default)}"
