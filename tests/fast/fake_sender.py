"""A publisher in memory, for what only sends."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.kafka.record import Record
from shared.kafka.sender import Headers, OnDelivery, Value


@dataclass
class FakeSender:
    """Keeps what is sent, in topics of one partition, and confirms it at once.

    With ``refuses`` nothing is delivered; with ``waits`` the test itself calls the ``reports``.
    """

    refuses: bool = False
    waits: bool = False
    sent: list[Record] = field(default_factory=list)
    topics: dict[str, list[Record]] = field(default_factory=dict)
    reports: list[OnDelivery] = field(default_factory=list)

    def send(
        self, topic: str, key: str, value: Value, headers: Headers | None = None, on_delivery: OnDelivery | None = None
    ) -> None:
        kept = self.topics.setdefault(topic, [])
        if not self.refuses:
            record = Record(topic, 0, len(kept), key, value, headers or {})
            kept.append(record)
            self.sent.append(record)
        if on_delivery is not None and self.waits:
            self.reports.append(on_delivery)
        elif on_delivery is not None:
            on_delivery(ConnectionError("refused") if self.refuses else None)

    def flush(self, timeout_s: float) -> int:
        return 0

    @property
    def keys(self) -> list[str | None]:
        return [record.key for record in self.sent]
