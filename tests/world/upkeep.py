"""What maintenance, and other tables, do to the source's lake: nothing to its rows, much to its files and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.world.duck import name, quote


class Chore(StrEnum):
    FLUSH = "flush"
    MERGE_FILES = "merge_files"
    REWRITE = "rewrite"
    CHECKPOINT = "checkpoint"
    INLINING = "inlining"
    OTHER_TABLE = "other_table"
    COMMENT = "comment"
    EXPIRE = "expire"
    LAYOUT = "layout"


OTHER = "bystander"
"""A table beside the source whose commits are nobody's business."""


@dataclass(frozen=True)
class Place:
    """The source table in an attached lake."""

    alias: str
    schema: str
    table: str

    @property
    def path(self) -> str:
        return name(self.alias, self.schema, self.table)

    @property
    def bystander(self) -> str:
        return name(self.alias, "main", OTHER)


@dataclass(frozen=True)
class Upkeep:
    """``number`` is a row limit for ``INLINING`` and how many snapshots ``EXPIRE`` keeps, ``layout`` what
    ``LAYOUT`` makes of the table; else they mean nothing."""

    chore: Chore
    number: int = 0
    layout: str = ""

    def sql(self, place: Place, kept: range) -> tuple[str, ...]:
        """Its statement, if there is anything to do; ``kept`` are the snapshots that the lake still has."""
        chore = flush(place) if self.chore is Chore.FLUSH else self._sql(place, kept)
        return (chore,) if chore else ()

    def _sql(self, place: Place, kept: range) -> str:
        lake = quote(place.alias)
        if self.chore is Chore.MERGE_FILES:
            return f"CALL ducklake_merge_adjacent_files({lake})"
        if self.chore is Chore.REWRITE:
            return f"CALL ducklake_rewrite_data_files({lake}, delete_threshold => 0.0)"
        if self.chore is Chore.CHECKPOINT:
            return f"CHECKPOINT {name(place.alias)}"
        if self.chore is Chore.OTHER_TABLE:
            return f"INSERT INTO {place.bystander} VALUES ({self.number})"
        if self.chore is Chore.LAYOUT:
            return f"ALTER TABLE {place.path} {self.layout}"
        if self.chore is Chore.COMMENT:
            return f"COMMENT ON TABLE {place.path} IS {quote(str(self.number))}"
        return set_inlining(place, self.number) if self.chore is Chore.INLINING else self._expire(lake, kept)

    def _expire(self, lake: str, kept: range) -> str:
        old = list(kept[: -self.number])
        return f"CALL ducklake_expire_snapshots({lake}, versions => {old})" if old else ""


def flush(place: Place) -> str:
    return f"CALL ducklake_flush_inlined_data({quote(place.alias)})"


def set_inlining(place: Place, rows: int) -> str:
    table = f"schema => {quote(place.schema)}, table_name => {quote(place.table)}"
    return f"CALL {name(place.alias)}.set_option('data_inlining_row_limit', {rows}, {table})"
