"""What records of a topic have become."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from services.applier.records.left_out import Asking
from services.applier.records.memory import BatchNames
from services.applier.records.rejection import Rejection
from shared.lake.catalog.reader import Column

PLACE_COLUMN = "_viaduck_place"
"""Tells which rows of ``rows`` are incomplete; no column can have this name."""


@dataclass
class ParsedRecords:
    """The rows of records, in the instance of ``con``, until ``drop``.

    ``rows`` is a view of all ``columns``: those of the destination in their order, then the new ones. With key columns
    it holds the newest record of each key, and ``touched``, a view of the key columns, the keys of all records.
    """

    con: duckdb.DuckDBPyConnection
    memory: BatchNames
    is_keyed: bool
    columns: tuple[Column, ...]
    new_columns: tuple[Column, ...]
    promotions: tuple[Column, ...]
    """Columns of the destination that are to have a wider type."""
    rejected: tuple[Rejection, ...]
    landed: int
    """Records that are not rejected, those that a newer one of their key replaces included."""
    tombstones: int
    """Of these, records without a value that delete their key."""
    rescued: dict[str, int]
    """Values in ``_rescued`` by the column that did not take them; under "" those of fields that have no column."""
    asking: Asking | None = None
    """The rows that the destination's own ones have to complete; the column ``PLACE_COLUMN`` tells which."""

    @property
    def rows(self) -> str:
        return self.memory.parsed_rows

    @property
    def touched(self) -> str | None:
        return self.memory.parsed_keys if self.is_keyed else None

    def drop(self) -> None:
        self.memory.drop(self.con)
