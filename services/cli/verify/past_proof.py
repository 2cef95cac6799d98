"""What can be said of a destination's retained snapshots: proven, different, or not to be proven any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from shared.contracts.messages import ItemKind
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.lake.catalog.reader import CatalogReader
from shared.lake.stamp import read_stamp

PAGE = 5_000
SHOWN = 5
"""Different snapshots that are shown; all are counted."""

MOVED = frozenset({ItemKind.SEED, ItemKind.CHANGES, ItemKind.ADVANCE})
"""Kinds of stamps after which the table equals the source at a position."""

GONE = frozenset({
    "history_expired", "history_damaged", "source_recreated", "source_moved", "source_gone", "schema_change",
    "routing_value_changed",
})  # fmt: skip
"""Problems that say of an older snapshot only that the source no longer has what a proof would need."""

COMPACTED = "the destination was compacted since, and DuckLake does not always show older snapshots right then"
TIDIED = "upkeep has removed the cursor of this snapshot"


@dataclass(frozen=True)
class StampedPosition:
    """A retained snapshot of a destination, and the position that its stamp tells."""

    snapshot: int
    position: int


@dataclass(frozen=True)
class PastProof:
    """The sum over all of them. ``note``: why the first was not proven, of those that were not."""

    proven: int = 0
    unproven: int = 0
    different: int = 0
    shown: tuple[tuple[StampedPosition, str], ...] = ()
    """The first different ones, each with what is wrong."""
    note: str = ""

    def with_proven(self) -> PastProof:
        return replace(self, proven=self.proven + 1)

    def with_unproven(self, why: str) -> PastProof:
        return replace(self, unproven=self.unproven + 1, note=self.note or why)

    def with_different(self, stamped: StampedPosition, said: str) -> PastProof:
        return replace(self, different=self.different + 1, shown=(*self.shown, (stamped, said))[:SHOWN])


def stamped(
    catalog: CatalogReader, pipeline: str, destination: str, since: datetime | None
) -> Iterator[StampedPosition]:
    """The retained snapshots that moved the destination, the newest first; those before ``since`` are left out."""
    before: int | None = None
    while found := catalog.history(f'"destination": "{destination}"', PAGE, before):
        for each in found:
            stamp = read_stamp(each.extra_info)
            is_young = since is None or each.time >= since
            if is_young and stamp is not None and stamp.speaks_of(pipeline, destination) and stamp.kind in MOVED:
                yield StampedPosition(each.snapshot, stamp.through)
        before = found[-1].snapshot


def last_compaction(catalog: CatalogReader, schema: str, table: str) -> int:
    """The newest snapshot that merged or rewrote the table's files; -1 where none did."""
    table_id = catalog.table_id(schema, table)
    if table_id is None:
        return NOT_SEEDED
    touches = catalog.touching(table_id, Range(NOT_SEEDED, catalog.head().snapshot))
    return max((each.snapshot for each in touches if each.is_maintenance), default=NOT_SEEDED)
