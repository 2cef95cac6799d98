"""When the records of a topic that no item covers yet are worth a transaction. Values in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.contracts.positions import Vector


class Trigger(StrEnum):
    """What made records worth a transaction."""

    ROWS = "rows"
    BYTES = "bytes"
    SECONDS = "seconds"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True)
class FlushRules:
    """The section ``flush`` of a file, as far as it concerns the reader."""

    rows: int
    bytes: int
    seconds: float


class Flushing:
    """Holds the head, up to which items are planned, back behind the newest records."""

    def __init__(self, rules: FlushRules) -> None:
        self._rules = rules
        self._looked_s = 0.0
        self._waits_since_s: float | None = None
        self.head: Vector | None = None
        """None before the first look."""

    @property
    def waits_since_s(self) -> float | None:
        """Since when the oldest record behind the head may be there: the look before it was first seen."""
        return self._waits_since_s

    def look(self, newest: Vector, now_s: float, record_bytes: int = 0) -> Trigger | None:
        """Take in the ends of the partitions; what made the head move, if it did.

        ``record_bytes``: of a record, by those of earlier items; 0 where none has been read yet.

        The first look finds whatever came before it, so it moves at once. A log that lost records has another
        head in any case.
        """
        before_s, self._looked_s = self._looked_s, now_s
        if self.head is None or not newest.covers(self.head):
            self.head, self._waits_since_s = newest, None
            return Trigger.CAUGHT_UP
        if newest == self.head:
            self._waits_since_s = None
            return None
        if self._waits_since_s is None:
            self._waits_since_s = before_s
        trigger = self._trigger(newest.records - self.head.records, now_s - self._waits_since_s, record_bytes)
        if trigger is not None:
            self.head, self._waits_since_s = newest, None
        return trigger

    def _trigger(self, records: int, waited_s: float, record_bytes: int) -> Trigger | None:
        if records >= self._rules.rows:
            return Trigger.ROWS
        if records * record_bytes >= self._rules.bytes:
            return Trigger.BYTES
        return Trigger.SECONDS if waited_s >= self._rules.seconds else None
