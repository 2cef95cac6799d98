"""What the reader knows of one destination."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from services.reader.planner.compaction import UNKNOWN, Wear
from shared.contracts.errors import MAX_ATTEMPTS
from shared.contracts.messages import DesiredState, Destination, ItemKind, Problem
from shared.contracts.positions import UNSPELLED, SpelledPosition, Vector
from shared.contracts.ranges import NOT_SEEDED

UNCOUNTED = -1
"""Of a seed that nothing has counted yet: no number of rows."""


@dataclass(frozen=True, slots=True)
class ItemInFlight:
    """The one item of a destination that has been published and not been answered."""

    item: str
    kind: ItemKind
    expected: int
    through: int
    until_s: float
    """When waiting for an answer ends."""
    charge: int = 0
    """Rows that it takes of the bound on rows in flight."""
    is_retry: bool = False
    expected_at: str = UNSPELLED

    @property
    def begin(self) -> SpelledPosition:
        """Where the cursor has to be."""
        return SpelledPosition(self.expected, self.expected_at)


@dataclass(slots=True)
class DestinationState:
    """A destination of our share. Times are monotonic seconds of this process; snapshots are the source's.

    A turn looks at tens of thousands: with more than 22 fields an object spreads over a fourth line of the processor's
    cache, and each look takes half as long again.
    """

    spec: Destination
    since_s: float
    """When ``position`` was last learned; before that, when we first heard of the destination."""
    position: int | None = None
    """The stored cursor; -1 where there is none yet, None until a probe told."""
    position_at: str = UNSPELLED
    """The source's own spelling of ``position``."""
    exact: int = NOT_SEEDED
    """Up to where the destination is known to be exact: its position, or further where nothing of it changed."""
    exact_at: str = UNSPELLED
    """The source's own spelling of ``exact`` where it lies beyond ``position``: an applier read the records in between
    and found none of the destination's."""
    rows_applied: int | None = None
    """What the cursor counts at ``position``; None where no answer told."""
    waits_since: datetime | None = None
    """When the oldest snapshot was committed that may hold an unapplied change; None where none is known."""
    in_flight: ItemInFlight | None = None
    wear: Wear = UNKNOWN
    """Whether its table is to be compacted."""
    attempts: int = 0
    """Failures in a row."""
    resends: int = 0
    """Consecutive items without an answer in time."""
    not_before_s: float = 0.0
    settles_s: float = 0.0
    """Until then an applier may still go by what was said of it before: nothing parks it for good."""
    is_suspect: bool = False
    """What we believe of it leaves no way on; its cursor is asked once more before it is parked for that."""
    parked: Problem | None = None
    trouble: Problem | None = None
    """What the last try failed with; None once something succeeded."""
    told_at: datetime | None = None
    """When an applier first said what it is parked for, or last what it fails with; None where that was not heard."""
    dropped: bool = False
    """An applier has taken table and cursor away; control's tombstone is on its way."""
    seed_rows: int | None = UNCOUNTED
    """Rows that a seed will bring, once counted; None where they were too many to count."""

    @property
    def name(self) -> str:
        return self.spec.destination

    @property
    def value(self) -> str:
        return self.spec.routing_value

    @property
    def reached(self) -> SpelledPosition:
        """The position, as of none where it is not known."""
        return SpelledPosition(NOT_SEEDED if self.position is None else self.position, self.position_at)

    @property
    def vector(self) -> Vector:
        """``position`` by partition; the beginning where the source has no such spelling."""
        return Vector.parse(self.position_at) if self.position_at else Vector()

    @property
    def exact_vector(self) -> Vector:
        """Up to where the destination has all of its records. It covers ``vector``."""
        return Vector.parse(self.exact_at) if self.exact_at else self.vector

    @property
    def known(self) -> SpelledPosition:
        """Up to where it is known to be exact, as of a position."""
        return SpelledPosition(max(self.exact, self.reached.number), self.exact_at) if self.exact_at else self.reached

    @property
    def is_sized(self) -> bool:
        return self.seed_rows != UNCOUNTED

    @property
    def is_running(self) -> bool:
        return self.spec.state is DesiredState.RUNNING and self.parked is None

    @property
    def is_seeded(self) -> bool:
        return self.position is not None and self.position != NOT_SEEDED

    @property
    def waits_to_be_heard(self) -> bool:
        """Whether it is in a state that control must show, and that no further answer will report."""
        return self.parked is not None or self.trouble is not None or self.dropped

    @property
    def is_exhausted(self) -> bool:
        return self.attempts >= MAX_ATTEMPTS

    def learn(
        self, position: int, now_s: float, rows_applied: int | None = None, position_at: str | None = None
    ) -> None:
        """Adopt the position of the cursor, even if it is lower than expected."""
        self.rows_applied, self.position_at, self.exact_at = rows_applied, position_at or UNSPELLED, UNSPELLED
        if position != self.position:
            self.since_s = now_s
            self.waits_since = None
        self.position = self.exact = position

    def grow(self, position: int, now_s: float, position_at: str | None = None) -> bool:
        """Take over a position that may be old news: within a generation they only grow. Whether it was news."""
        if self.position is None or position <= self.position:
            return False
        exact, exact_at = self.exact, self.exact_at
        self.learn(position, now_s, position_at=position_at)
        self.stay_exact(exact, exact_at)
        return True

    def stay_exact(self, exact: int, exact_at: str) -> None:
        """After ``learn``: keep what was known before where it lies beyond the position. By spellings, where it has
        one: two vectors may have one sum."""
        if exact_at:
            if Vector.parse(exact_at).covers(self.vector) and exact_at != self.position_at:
                self.exact, self.exact_at = exact, exact_at
        else:
            self.exact = max(exact, self.exact)

    def found_none(self, through: int, through_at: str | None) -> None:
        """An applier read up to there, and found nothing of the destination's."""
        if through_at is None:
            self.exact = max(self.exact, through)
        elif Vector.parse(through_at).covers(self.exact_vector) and through_at != self.position_at:
            self.exact, self.exact_at = through, through_at
