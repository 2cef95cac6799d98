"""What a destination's cursor is called, for those who write it and those who only look."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb

from shared.contracts.errors import DestinationError, SourceError
from shared.contracts.messages import MAX_GENERATION, MOST
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.sql import path
from shared.lake.table import is_table

SCHEMA = "_viaduck"


@dataclass(frozen=True)
class Position:
    """As much of a stored cursor as it takes to check what it promises."""

    generation: int
    position: int
    table_uuid: str
    routing_value: str
    source: str
    """See ``origin``."""


LONGEST_TEXT = 200_000
"""Characters of any text in a cursor: routing values are data, and a file sets them no limit of its own."""

IN_HEX = "hex:"

UNKEPT = re.compile(r"\x00|\{[A-Z_]+")


def kept(routing_value: str) -> str:
    """A routing value as the cursor keeps it: as it is, unless DuckLake would write another, then in hexadecimal.

    The cursor is inlined, so all that it holds is text of a COMMIT (H16).
    """
    if UNKEPT.search(routing_value) is None and not routing_value.startswith(IN_HEX):
        return routing_value
    return IN_HEX + routing_value.encode(errors="surrogatepass").hex()


def told(kept_value: str) -> str:
    """The routing value that ``kept`` was given."""
    if not kept_value.startswith(IN_HEX):
        return kept_value
    try:
        return bytes.fromhex(kept_value.removeprefix(IN_HEX)).decode(errors="surrogatepass")
    except ValueError:
        said = "the cursor's routing value is in no hexadecimal that Viaduck writes"
        hint = "another program wrote to the schema _viaduck; reseed the destination"
        raise DestinationError("cursor_damaged", said, hint) from None


def origin(lake_uuid: str, at: datetime | None) -> str:
    """The lake and the history that a position belongs to, as the cursor stores it in ``source_lake``.

    The lake's uuid and, behind an @, when the position's snapshot was committed by the source's own clock: a source
    that was restored from a backup and written again repeats the number, but not the time. Cursors of older versions
    hold the uuid alone, and so do cursors whose snapshot was not retained.
    """
    return lake_uuid if at is None else f"{lake_uuid}@{at.astimezone(UTC).isoformat()}"


def committed_at(source: str) -> datetime | None:
    """When the position's snapshot was committed, by what ``origin`` made; None where it does not tell."""
    _, _, at = source.partition("@")
    return datetime.fromisoformat(at) if at else None


def moved(source: str, position: int, at: datetime | None) -> SourceError | None:
    """What is wrong where the source's snapshot ``position`` was committed ``at``; None if nothing is, or tells."""
    then = committed_at(source)
    if then is None or at is None or then == at:
        return None
    return SourceError(
        "source_moved",
        f"the source's snapshot {position} is of {at.isoformat()}, but this destination was filled from one of"
        f" {then.isoformat()}: its history was replaced, as after a restore from a backup",
        "reseed the destination; routing.on_gap: reseed does so by itself",
    )


def require_intact(
    key: str, counts: Iterable[tuple[object, int, int]], texts: Iterable[object], source: object
) -> None:
    """Raises ``cursor_damaged`` for a cursor that Viaduck cannot have written: the lake's owner may have, and no
    service could read a message about it. ``counts``: each with the least and the most that it may be."""
    sound = all(isinstance(each, int) and least <= each <= most for each, least, most in counts)
    sound = sound and all(isinstance(each, str) and len(each) <= LONGEST_TEXT for each in texts)
    if sound and isinstance(source, str):
        with contextlib.suppress(ValueError):
            committed_at(source)
            return
    raise DestinationError(
        "cursor_damaged",
        f"the cursor of {key} holds what Viaduck never writes",
        "another program wrote to the schema _viaduck; reseed the destination",
    )


def cursor_name(pipeline: str, destination: str) -> str:
    """The name of a destination's own cursor table; names of destinations may be longer than a catalog allows."""
    return "cursor_" + hashlib.sha256(f"{pipeline}/{destination}".encode()).hexdigest()[:16]


def read_position(
    con: duckdb.DuckDBPyConnection, alias: str, pipeline: str, destination: str, at: int | None = None
) -> Position | None:
    """The stored position; None before the first seed. In a transaction, so that what is a table then stays one.

    ``at``: of an older snapshot, None too where upkeep has removed the row. Raises ``cursor_damaged`` unless it is
    exactly one row.
    """
    name = cursor_name(pipeline, destination)
    if not is_table(con, alias, SCHEMA, name):
        return None
    table = path(alias, SCHEMA, name) + ("" if at is None else f" AT (VERSION => {at:d})")
    try:
        rows = con.execute(
            f"SELECT generation, position, source_table_uuid, routing_value, source_lake FROM {table}"
        ).fetchall()
    except duckdb.CatalogException:
        return None
    if at is not None and not rows:
        return None
    if len(rows) != 1:
        raise DestinationError(
            "cursor_damaged",
            f"the cursor of {pipeline}/{destination} has {len(rows)} rows instead of one",
            "another program wrote to the schema _viaduck; reseed the destination",
        )
    held, key = Position(*rows[0]), f"{pipeline}/{destination}"
    counts = ((held.generation, 1, MAX_GENERATION), (held.position, NOT_SEEDED, MOST))
    require_intact(key, counts, (held.table_uuid, held.routing_value, held.source), held.source)
    return replace(held, routing_value=told(held.routing_value))
