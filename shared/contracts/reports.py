"""What services report on ``viaduck.progress`` beside the outcome of items: how far a reader has looked, routing values
without a destination, records of a topic that no destination takes, and the health of lakes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.messages import Count, Generation, Message, Name, Position, Problem, Progress, Snapshot, now
from shared.contracts.positions import Spelling

LONGEST_OFFERED: Final = 200
MOST_OFFERED: Final = 400
"""Routing values of one offer, so that no message is larger than a broker takes, whatever the values hold."""

MOST_OF_A_RANGE: Final = 200
"""Routing values of one ``UnroutedRecords``, which holds two vectors beside them."""


class Lagging(BaseModel):
    """A destination of a ``Frontier`` that is not known to be exact at the head."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    known_through: Position
    rows_through: Position | None = None
    """Up to where none of its rows changed, where that is further: the source's columns changed, and the destination
    has still to follow."""
    lag_seconds: float | None = Field(default=None, ge=0)
    """Age, by the source catalog's own clock, of the oldest snapshot that holds an unapplied change of it; None where
    that is not known."""
    in_flight: bool = False
    attempts: int = 0
    """Failed tries in a row; ``exhausted`` is true from ``MAX_ATTEMPTS`` on."""
    exhausted: bool = False


class Share(BaseModel):
    """Which destinations of its pipeline a reader plans: ``instance.partition`` of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["all", "explicit", "hash"] = "all"
    include: tuple[str, ...] = ()
    total: int = Field(default=1, ge=1)
    ordinal: int = Field(default=0, ge=0)


class Frontier(Message):
    """``viaduck.progress``, key ``pipeline/@instance/page``: how far the reader has looked.

    Every destination of its share that no page lists under ``lagging`` is known to be exact at ``head``. A cycle's
    pages share ``cycle``; ``pages`` says how many there are.
    """

    record: Literal["frontier"] = "frontier"
    pipeline: Name
    instance: str
    cycle: Count
    page: int
    pages: int
    head: Snapshot
    head_at: Spelling | None = None
    """The offsets behind a topic's newest stable records, which ``head`` is held back behind until a flush; absent for
    lakes."""
    waits: dict[int, Annotated[float, Field(ge=0)]] | None = None
    """Seconds since the destination was last seen to hold every record of a partition: of those where it does not, at
    most 64. Absent for lakes."""
    head_time: datetime | None = None
    share: Share = Share()
    revision: str = ""
    """``shared.contracts.digest`` of all destinations of its share that the reader knows, whatever their state.

    A destination that ``lagging`` does not name is exact only where this is the digest of what control has published;
    else the reader may just not have heard of it yet.
    """
    lagging: dict[str, Lagging] = Field(default={})
    settled: bool
    """No item is in flight, due or unprobed: destinations that lag are parked, exhausted, paused or stopped."""
    error: Problem | None = None
    """Why the source can't be read now; None while it can."""
    notice: str | None = None
    """Why the table is expensive to read, and the statement that corrects it; None if it is not."""
    look_age_seconds: float | None = Field(default=None, ge=0)
    """How long before ``at`` the source was last looked at with success; None where it never was."""
    overdue: bool = False
    """The last poll is too old: the state of the source, and every lag, are unknown."""
    at: datetime = Field(default_factory=now)

    @property
    def key(self) -> str:
        return f"{self.pipeline}/@{self.instance}/{self.page}"


class Offered(BaseModel):
    """A routing value without a destination. It is untrusted and may contain any character.

    ``value`` is the whole value or, where that is longer than ``LONGEST_OFFERED``, its beginning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str = Field(max_length=LONGEST_OFFERED)
    whole: bool = True
    digest: str = Field(pattern=r"^[0-9a-f]{32}$")
    """``shared.contracts.digest.value_digest`` of the whole value."""
    rows: int = Field(ge=0)
    """Rows that were seen with it. Of a lake at most: those there when the reader first looked, and every change since.
    Of a topic at least: records that appliers read."""
    first_seen: Snapshot
    """The snapshot of the source, or the end of the range, in which it was seen first; of a topic a position."""


class Offer(Message):
    """``viaduck.progress``, key ``pipeline/@instance/offer``: routing values that have no destination.

    Always all that the reader remembers, so that the last message is complete. It is bounded: a value that is left out
    is offered when its rows change again, or when there is room.
    """

    record: Literal["offer"] = "offer"
    pipeline: Name
    instance: str
    values: tuple[Offered, ...] = Field(default=(), max_length=MOST_OFFERED)
    more: bool = False
    """There were more than could be remembered."""
    at: datetime = Field(default_factory=now)

    @property
    def key(self) -> str:
        return f"{self.pipeline}/@{self.instance}/offer"


class UnroutedRecords(Message):
    """``viaduck.progress``, key ``pipeline/@source/unrouted``: what an applier read that no destination takes.

    Of a topic that is routed. A range is told once by each job that reads it, and read again for destinations elsewhere
    and after a failure. Its ends tell the reader which ranges overlap, so that no record is counted twice.
    """

    record: Literal["unrouted"] = "unrouted"
    pipeline: Name
    topic_id: str = Field(max_length=200)
    after_at: Spelling
    through_at: Spelling
    """The ends of the range; all its records up to there were read."""
    rows: Count
    """Its records whose routing value no destination has, and those without one; not those that are rejected."""
    values: tuple[Offered, ...] = Field(default=(), max_length=MOST_OF_A_RANGE)
    """The values that no destination has, those with most records first; ``rows`` are those of the range."""
    more: bool = False
    """There were more values than that."""
    applier: str = ""
    at: datetime = Field(default_factory=now)

    @property
    def key(self) -> str:
        return f"{self.pipeline}/@source/unrouted"


class LakeFigures(BaseModel):
    """How a table and its lake fare, as the catalog had it at one moment. Sizes are in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: str = Field(max_length=40)
    files: Count
    bytes: Count
    rows: Count
    delete_files: Count
    dead_rows: Count
    inlined_rows: Count
    small_files: Count
    old_files: Count
    old_bytes: Count
    cleanup_files: Count
    snapshots: Count
    oldest_snapshot: Snapshot
    oldest_at: datetime
    oldest_age_seconds: float = Field(ge=0, allow_inf_nan=False)

    @property
    def small_file_share(self) -> float:
        """Of the live files; 0 where there is none."""
        return self.small_files / self.files if self.files else 0.0


class LakeHealth(Message):
    """``viaduck.progress``, key ``pipeline/destination/@health``: what a look at a destination's catalog came to.

    That of the source, without ``destination``, has the key ``pipeline/@source/@health``. Either ``figures`` or
    ``error`` is there.
    """

    record: Literal["health"] = "health"
    pipeline: Name
    destination: Name | None = None
    generation: Generation | None = None
    figures: LakeFigures | None = None
    error: Problem | None = None
    applier: str = ""
    at: datetime = Field(default_factory=now)

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.destination or '@source'}/@health"


Told = Progress | Frontier | Offer | UnroutedRecords | LakeHealth
"""What the progress topic carries."""


def parse_progress(payload: bytes) -> Told:
    """Parse a value of the progress topic, which carries five records. Raises ``UnreadableMessage``.

    Quotes within a quoted text are escaped in JSON, so no routing value and no error can pass for a mark.
    """
    model: type[Told]
    model = next((model for mark, model in MARKED.items() if mark in payload), Progress)
    return model.from_bytes(payload)


MARKED: dict[bytes, type[Frontier] | type[Offer] | type[UnroutedRecords] | type[LakeHealth]] = {
    b'"record":"frontier"': Frontier,
    b'"record":"offer"': Offer,
    b'"record":"unrouted"': UnroutedRecords,
    b'"record":"health"': LakeHealth,
}
