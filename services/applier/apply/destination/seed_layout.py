"""How the table is laid out that a seed fills: as declared where it is new or has no layout, else as it is."""

from __future__ import annotations

import duckdb

from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.destination.lay_out import kept, lay_out
from services.applier.apply.destination.table_schema import table_path
from services.applier.apply.source.reading import Reading
from services.applier.apply.source.unsupported_values import find_nul
from shared.contracts.layout import TableLayout
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.catalog.arrangement import UNARRANGED, Arrangement
from shared.lake.checks.layout_keys import Keys


def lay_out_seed(
    con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange, keys: Keys, *, created: bool
) -> TableLayout | None:
    """Set the layout of the empty table, unless it was there and has one, which is its owner's or an older one.

    Returns what the table then has, None where nothing is declared.
    """
    destination, reading = change.target.destination, change.reading
    there = UNARRANGED if created else arrangement(lake, destination)
    if destination.layout is not None and there != UNARRANGED:
        return kept(destination.layout, keys, there)
    if keys[0] and reading is not None:
        require_written(change, reading, frozenset(part.column.lower() for part in keys[0]))
    lay_out(con, table_path(lake.alias, destination), keys)
    return destination.layout


def arrangement(lake: OpenLake, destination: Destination) -> Arrangement:
    """How the table is laid out that was there before this transaction."""
    if destination.layout is None:
        return UNARRANGED
    at = lake.catalog.head().snapshot
    return lake.catalog.arrangement(destination.schema_name, destination.table, at)


def require_written(change: DestinationChange, reading: Reading, partitioned: frozenset[str]) -> None:
    """Raises ``value_not_carried`` for a text that a table can't hold that is, or is to be, partitioned so."""
    if partitioned and change.counts.upserts:
        refused = find_nul(reading, change.number, partitioned)
        if refused is not None:
            raise refused


def is_encrypted(lake: OpenLake, layout: TableLayout | None) -> bool:
    """Whether the files of a lake are encrypted whose destination's are to be."""
    return layout is not None and layout.encrypted and lake.catalog.is_encrypted()
