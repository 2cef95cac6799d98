"""What a destination's cursor is called, for those who write it and those who only look."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import duckdb

from shared.errors import DestinationError
from shared.lake.sql import path

SCHEMA = "_viaduck"


@dataclass(frozen=True)
class Position:
    """As much of a stored cursor as it takes to check what it promises."""

    generation: int
    position: int
    table_uuid: str
    routing_value: str


def cursor_name(pipeline: str, destination: str) -> str:
    """The name of a destination's own cursor table; names of destinations may be longer than a catalog allows."""
    return "cursor_" + hashlib.sha256(f"{pipeline}/{destination}".encode()).hexdigest()[:16]


def read_position(con: duckdb.DuckDBPyConnection, alias: str, pipeline: str, destination: str) -> Position | None:
    """The stored position; None before the first seed. Raises ``cursor_damaged`` unless it is exactly one row."""
    table = path(alias, SCHEMA, cursor_name(pipeline, destination))
    try:
        rows = con.execute(f"SELECT generation, position, source_table_uuid, routing_value FROM {table}").fetchall()
    except duckdb.CatalogException:
        return None
    if len(rows) != 1:
        raise DestinationError(
            "cursor_damaged",
            f"the cursor of {pipeline}/{destination} has {len(rows)} rows instead of one",
            "somebody else wrote to the schema _viaduck; reseed the destination",
        )
    return Position(*rows[0])
