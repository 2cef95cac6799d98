"""Snapshots and the span of a lake's history, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Retained:
    """The ends of a lake's history. Times are the catalog's own."""

    lake: str
    """The lake's uuid."""
    oldest: int
    oldest_at: datetime
    head: int
    catalog_now: datetime

    @property
    def length(self) -> int:
        """Snapshots from the oldest to the head, gaps counted."""
        return self.head - self.oldest


@dataclass(frozen=True)
class LakeSnapshot:
    id: int
    at: datetime
