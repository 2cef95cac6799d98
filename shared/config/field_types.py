"""How the types of declared columns are spelled: as DuckDB tells them of a table."""

from __future__ import annotations

import re

ALIASES = {
    "BOOL": "BOOLEAN",
    "INT": "INTEGER",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "STRING": "VARCHAR",
    "TEXT": "VARCHAR",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}


def duckdb_spelling(declared: str) -> str:
    """A type as DuckDB spells it, where the text is a common alias; else the text in capitals."""
    upper = re.sub(r"\s*([(),])\s*", r"\1", " ".join(declared.upper().split()))
    return ALIASES.get(upper, upper)
