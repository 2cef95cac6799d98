"""What one transaction at a destination is to bring about, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.applier.apply.cursor import fence
from services.applier.apply.source.reading import ChangeCounts, Reading
from services.applier.model.task import Target
from shared.contracts.layout import TableLayout
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Skipped
from shared.contracts.positions import UNSPELLED
from shared.contracts.upkeep import TableWear, UpkeepResult
from shared.lake.catalog.reader import TableInfo
from shared.lake.columns.followed import ColumnEvolution
from shared.lake.columns.terms import NO_COMMENTS, NOT_CARRIED, Comments, Described
from shared.lake.direct.eligibility import ExtensionReason
from shared.lake.stamp import short_list


@dataclass(frozen=True)
class Applied:
    """What became of one target. ``reason`` tells why the extension committed and not Viaduck itself."""

    outcome: Outcome
    position: int | None
    through: int | None = None
    deleted: int = 0
    inserted: int = 0
    rows_applied: int | None = None
    generation: int | None = None
    position_at: str = UNSPELLED
    """The source's own spelling of ``position``."""
    through_at: str = UNSPELLED
    """And of ``through``, where nothing was committed."""
    commit: CommitPath | None = None
    reason: ExtensionReason | None = None
    layout: TableLayout | None = None
    """What the table has after a seed; None where nothing is declared of it."""
    left: tuple[str, ...] | None = None
    """What the table could not be given of the source's NOT NULL, defaults and comments; None where that was not looked
    at."""
    wear: TableWear | None = None
    upkeep: UpkeepResult | None = None
    skipped: Skipped | None = None
    """What the commit of ``position`` skipped."""


@dataclass
class DestinationChange:
    """What one transaction is to bring about: the reading that holds the rows, and which of them are the target's."""

    target: Target
    through: int
    table: TableInfo
    number: int = 0
    reading: Reading | None = None
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    evolution: ColumnEvolution | None = None
    """What has become of the source's columns since the position."""
    steps: Sequence[str] = ()
    """What the transaction has done to the destination's columns, in words; renames over a spare name say nothing."""
    through_at: str = UNSPELLED
    """The source's own spelling of ``through``."""
    pinned: int | None = None
    """The destination's snapshot that the transaction began with, once it was asked for."""
    is_partitioned: bool = False
    """Whether the destination's table was partitioned then."""

    @property
    def is_seed(self) -> bool:
        return self.target.item.kind is ItemKind.SEED

    @property
    def carries(self) -> bool:
        """Whether the table is to get the source's NOT NULL, defaults and comments, which it may not have yet."""
        return self.reading is not None and self.number in self.reading.carrying

    @property
    def wanted(self) -> Described | None:
        """The source's columns with these; None where the destination is to have none of them."""
        destination = self.target.destination
        if self.reading is None or self.reading.described is None or not destination.carries_terms:
            return None
        described = self.reading.described
        return described if destination.carries_comments else replace(described, comments=None)

    @property
    def comments_before(self) -> Comments:
        """The source's at the destination's position."""
        return (
            NO_COMMENTS if self.reading is None else self.reading.comments.get(self.target.item.expected, NO_COMMENTS)
        )

    @property
    def left(self) -> tuple[str, ...] | None:
        """What of it the transaction could not carry, as a stamp says it; None where it did not look."""
        said = tuple(short_list([step for step in self.steps if step.startswith(NOT_CARRIED)]))
        return said if self.carries or self.steps else None

    def move(self, rows: int) -> fence.Move:
        item = self.target.item
        return fence.Move(
            self.target.destination, item, self.through, self.table, rows, self.time_of(item.expected), self.through_at
        )

    def stamp(
        self, after: int, token: str, deleted: int, inserted: int, commit: CommitPath = CommitPath.EXTENSION
    ) -> fence.Stamp:
        """What the transaction's snapshot says of itself."""
        item, counts = self.target.item, None if self.reading is None else self.reading.records
        rejected = 0 if counts is None else counts.rejected
        return fence.Stamp(
            item,
            item.kind.value,
            after,
            self.through,
            token,
            deleted,
            inserted,
            commit,
            self.through_at,
            rejected,
            self.steps,
        )

    def time_of(self, snapshot: int) -> datetime | None:
        """When a snapshot of the source was committed; None where that was not asked for, or it is gone."""
        return None if self.reading is None else self.reading.times.get(snapshot)
