"""Steps from a table's columns to others as DuckLake's statements."""

from __future__ import annotations

from shared.lake.columns.evolution import ColumnStep, StepKind
from shared.lake.sql import ident, literal, path


def statement_of(step: ColumnStep, table: str) -> str:
    """``table`` is a quoted path."""
    column = path(*step.path)
    match step.kind:
        case StepKind.DROP:
            return f"ALTER TABLE {table} DROP COLUMN {column}"
        case StepKind.RENAME:
            return f"ALTER TABLE {table} RENAME COLUMN {column} TO {ident(step.name)}"
        case StepKind.WIDEN:
            return f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {step.type}"
        case StepKind.ADD if step.default is None:
            return f"ALTER TABLE {table} ADD COLUMN {column} {step.type}"
        case StepKind.ADD:
            return f"ALTER TABLE {table} ADD COLUMN {column} {step.type} DEFAULT {literal(step.default)}"
