"""Whether an item still speaks of the source that is there. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from shared.contracts.errors import DestinationError, SourceError, ViaduckError
from shared.contracts.messages import ItemKind, WorkItem
from shared.lake.catalog.reader import Column, TableInfo
from shared.lake.sql import ident, path
from shared.lake.types import is_reserved, not_carried


def refusal(item: WorkItem, table: TableInfo, through: int, times: Mapping[int, datetime]) -> ViaduckError | None:
    """Why a position can't be moved to ``through``, where the source's table is ``table``; None if it can.

    A column that can't be carried may come at any time, so it is looked for at each. ``times`` tells when the snapshots
    that the item names were committed, of those that are still retained.
    """
    for column in table.columns:
        if (said := not_carried(column.name, column.type)) is not None:
            return DestinationError(
                "schema_change", f"{said}, at snapshot {through} of the source", _remedy(table, column)
            )
    seen = item.seen
    if item.kind is not ItemKind.SEED and seen is not None and times.get(seen.snapshot) != seen.at:
        return SourceError(
            "source_behind",
            f"the source's snapshot {seen.snapshot} is not the snapshot that this item was planned with",
            "nothing: it is planned again",
        )
    return None


def _remedy(table: TableInfo, column: Column) -> str:
    if not is_reserved(column.name):
        return "then resume"
    named, other = path(table.schema, table.name), ident(f"own_{column.name}")
    return f"in the source: ALTER TABLE {named} RENAME COLUMN {ident(column.name)} TO {other}; then resume"
