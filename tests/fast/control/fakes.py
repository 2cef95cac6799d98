"""A broker and a source in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shared.config.catalogs import ResolvedLake
from shared.config.model import Config
from shared.contracts.errors import SourceError
from shared.contracts.messages import Destination
from shared.lake.catalog.reader import Column, Head, TableInfo
from shared.lake.checks.source import SourceLook
from shared.lake.columns.history import ColumnVersion


@dataclass
class FakeTopic:
    """What a publisher sent to one topic, and what compaction would leave of it."""

    name: str = "viaduck.destinations"
    sent: list[tuple[str, bytes | None]] = field(default_factory=list)

    def send(
        self, topic: str, key: str, value: bytes | None, headers: object = None, on_delivery: object = None
    ) -> None:
        assert (headers, on_delivery) == (None, None)
        assert topic == self.name
        self.sent.append((key, value))

    @property
    def kept(self) -> dict[str, Destination | None]:
        """By destination id; None for one that is gone."""
        latest = {key: Destination.from_bytes(value) for key, value in self.sent if value is not None}
        return {key.split("/")[1]: None if said.removed else said for key, said in latest.items()}


@dataclass
class FakeSource:
    """A source whose routing column is a VARCHAR; ``error`` is raised as long as it is set."""

    error: Exception | None = None
    looks: int = 0
    lake: str = "sqlite:/source.sqlite"
    versions: tuple[ColumnVersion, ...] = ()
    """Of its columns, up to snapshot 10."""

    def look(self, config: Config, environ: Mapping[str, str]) -> SourceLook:
        self.looks += 1
        if self.error is not None:
            raise self.error
        now, routing = datetime.now(UTC), Column("company", "VARCHAR")
        return SourceLook(
            lake=ResolvedLake(self.lake),
            head=Head(10, now, now),
            table=TableInfo("main", "events", 1, "a table", "a lake", 1, (routing,), self.versions, snapshot=10),
            routing=routing,
            keys=(),
            routing_values={each.id: each.routing_value for each in config.destinations},
        )


UNREACHABLE = SourceError("source_unreachable", "the source: connection refused", "start it")
