"""What the reader asks of a source, whatever its kind. ``lake_source`` answers it for a table of a lake."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.frontier import TopicEnds
from services.reader.planner.scheduling import SourceState
from shared.contracts.errors import Error
from shared.contracts.positions import SpelledPosition
from shared.contracts.ranges import Range
from shared.contracts.reports import Offered
from shared.lake.catalog.reader import Head


class Expired(Error):
    """A range can't be read: the snapshot that it begins after is gone."""

    def __init__(self, snapshot: int) -> None:
        super().__init__(f"snapshot {snapshot} of the source is no longer retained")
        self.snapshot = snapshot


@dataclass(frozen=True)
class Cut:
    """A range that is to be counted as one step, and which parts of the feed tell."""

    range: Range
    inserted: tuple[Range, ...] = ()
    deleted: tuple[Range, ...] = ()
    pinned: bool = False
    oldest_touch: datetime | None = None


class SourceReader(Protocol):
    """One source of one pipeline. Every method raises ``SourceError`` where it can't be read now, or is not what it
    was; ``cuts`` and ``count`` raise ``Expired`` for a range that begins before what is retained."""

    def head(self) -> Head:
        """The newest position: the one request of an idle poll."""

    def observe(self, head: Head) -> SourceState:
        """What else metadata tells at the head."""

    def weigh(self, record_bytes: int) -> None:
        """Take in how large a record is, by those that appliers have read."""

    def measure(self, reached: Iterable[SpelledPosition]) -> None:
        """Show what only this kind of source has. ``reached``: positions of destinations."""

    def ends(self) -> TopicEnds | None:
        """A topic's partitions as they were last measured; None of another kind of source, and before."""

    def cuts(self, snapshots: Range) -> list[Cut]:
        """How a range is to be counted, oldest part first."""

    def count(self, cut: Cut, routed: Collection[str]) -> CountedStep:
        """Count one cut, for all routing values; what is of none of the ``routed`` ones is counted apart."""

    def sizes(self) -> dict[str, int] | None:
        """Rows by routing value at the head, for seeds; None where they are too many for that."""

    def unknown(self, routed: Collection[str]) -> tuple[list[Offered], bool]:
        """Present routing values without a destination, and whether there are more."""

    def close(self) -> None: ...
