"""When two entries name one table: in one lake, if schema and table differ in case at most.

The entries of a file, those of two files, and destinations over REST are compared by this (``rules``, ``deployment``,
``services.control.model.conflicts``).
"""

from __future__ import annotations

ADVICE = "choose another catalog, schema or table"
THE_SOURCES = f"is the source's own table; {ADVICE}"


def table_names(schema: str, table: str) -> tuple[str, str]:
    """Equal for equal tables of one lake: DuckLake's names compare without regard to case."""
    return schema.lower(), table.lower()
