"""A source and a broker in memory, with the interfaces of the real ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.scheduling import SourceState
from services.reader.source.source_reader import Cut, Expired
from shared.contracts.digest import value_digest
from shared.contracts.errors import SourceError, ViaduckError
from shared.contracts.messages import Progress, WorkItem
from shared.contracts.positions import SpelledPosition
from shared.contracts.ranges import Range
from shared.contracts.reports import Frontier, Offer, Offered, Told, parse_progress
from shared.lake.catalog.reader import Head
from shared.runtime.metrics import Metrics
from tests.fast.fake_sender import FakeSender
from tests.fast.reader.simulation import EPOCH, source_state

UNREACHABLE = SourceError("source_unreachable", "nobody answers", "start it")


@dataclass
class FakeSource:
    """``history`` holds the changed rows by routing value of each snapshot; ``fails`` is raised by every call,
    ``unsizable`` where the rows of seeds are asked for, ``unlistable`` where all routing values are."""

    history: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    oldest: int = 0
    table: str = "table"
    segments: bool = False
    fails: ViaduckError | None = None
    unsizable: ViaduckError | None = None
    unlistable: ViaduckError | None = None
    on_call: Callable[[], None] = lambda: None
    most: int = 400
    committed: datetime = EPOCH
    """When the head was, by the catalog's clock."""
    calls: list[str] = field(default_factory=list)

    def commit(self, **rows: int) -> int:
        self.history.append(rows)
        return len(self.history) - 1

    def weigh(self, record_bytes: int) -> None:
        """Nothing."""

    def measure(self, reached: Iterable[SpelledPosition]) -> None:
        """Nothing."""

    def ends(self) -> None:
        """It has no partitions."""

    def close(self) -> None:
        """It holds nothing."""

    def head(self) -> Head:
        self._called("head")
        return Head(len(self.history) - 1, self.committed, EPOCH + timedelta(seconds=100))

    def observe(self, head: Head) -> SourceState:
        self._called("observe")
        return source_state(head.snapshot, oldest=self.oldest, table=self.table, at=head.time)

    def cuts(self, range: Range) -> list[Cut]:
        self._called(f"cuts {range}")
        if range.after < self.oldest:
            raise Expired(range.after)
        if not self.segments:
            return [Cut(range)]
        return [Cut(Range(snapshot - 1, snapshot), pinned=True) for snapshot in _snapshots(range)]

    def count(self, cut: Cut, routed: Collection[str]) -> CountedStep:
        self._called(f"count {cut.range}")
        rows: dict[str, int] = {}
        for snapshot in _snapshots(cut.range):
            for value, changed in self.history[snapshot].items():
                rows[value] = rows.get(value, 0) + changed
        unrouted = sum(changed for value, changed in rows.items() if value not in routed)
        return CountedStep(cut.range, rows, sum(rows.values()), cut.pinned, EPOCH if rows else None, unrouted)

    def sizes(self) -> dict[str, int] | None:
        self._called("sizes")
        if self.unsizable is not None:
            raise self.unsizable
        return {"a": 10}

    def unknown(self, routed: Collection[str]) -> tuple[list[Offered], bool]:
        self._called("unknown")
        if self.unlistable is not None:
            raise self.unlistable
        rows: dict[str, int] = {}
        for changed in self.history:
            for value, count in changed.items():
                rows[value] = rows.get(value, 0) + count
        found = [(count, value) for value, count in rows.items() if value not in routed]
        shown = sorted(found, reverse=True)[: self.most]
        head = len(self.history) - 1
        return [
            Offered(value=value, digest=value_digest(value), rows=count, first_seen=head) for count, value in shown
        ], len(found) > self.most

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.on_call()
        if self.fails is not None:
            raise self.fails


@dataclass
class ReaderSender(FakeSender):
    """What a reader sends, as messages, to topics that are said to have two partitions."""

    def partitions(self, topic: str) -> int | None:
        return 2

    @property
    def items(self) -> list[WorkItem]:
        return [WorkItem.from_bytes(record.value or b"") for record in self.sent if record.topic.endswith(".work")]

    @property
    def frontiers(self) -> list[Frontier]:
        return [message for message in self._progress() if isinstance(message, Frontier)]

    @property
    def parks(self) -> list[Progress]:
        return [message for message in self._progress() if isinstance(message, Progress)]

    @property
    def offers(self) -> list[Offer]:
        return [message for message in self._progress() if isinstance(message, Offer)]

    def _progress(self) -> list[Told]:
        return [parse_progress(record.value or b"") for record in self.sent if record.topic.endswith(".progress")]


def _snapshots(range_: Range) -> range:
    return range(range_.after + 1, range_.through + 1)


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    """The present value of a metric of pipeline ``p``; 0 where it has none yet."""
    return metrics.registry.get_sample_value(f"viaduck_{name}", {"pipeline": "p", **labels}) or 0.0
