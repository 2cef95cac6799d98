"""The messages on the five topics: one model each, and how they are parsed.

==========================  =====================  =========  ==============================
topic                       key                    kept       producer → consumer
==========================  =====================  =========  ==============================
``viaduck.destinations``    pipeline/destination   compacted  control → reader, appliers
``viaduck.pipelines``       pipeline               compacted  control → readers, appliers
``viaduck.work``            pipeline/destination   by time    reader → appliers
``viaduck.progress``        pipeline/destination   compacted  appliers, reader → reader, control
``viaduck.dead-letter``     as received            by time    any service that could not read a message
==========================  =====================  =========  ==============================

Messages are hints: each may be lost, duplicated, reordered or delayed without harm, because a destination's position is
stored in the destination itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.contracts.errors import Problem as Problem
from shared.contracts.errors import UnreadableMessage
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.layout import TableLayout
from shared.contracts.positions import UNSPELLED, SpelledPosition, Spelling, Vector, is_spelling_of
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import Damage, TableWear, UpkeepOrder, UpkeepOverride, UpkeepResult

VERSION: Final = 1

MAX_GENERATION: Final = 2**53
"""No destination ever lives that often: a message with more is garbage, and must not become our truth."""

ADOPTABLE: Final = 2**52
"""The highest generation that is taken from a destination's own lake, whose owner may have written it: as many lives
may follow it."""

MOST: Final = 2**62
"""An upper bound for other counters, which a catalog can store."""

Snapshot = Annotated[int, Field(ge=0, le=MOST)]
Position = Annotated[int, Field(ge=NOT_SEEDED, le=MOST)]
Generation = Annotated[int, Field(ge=1, le=MAX_GENERATION)]
Count = Annotated[int, Field(ge=0, le=MOST)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
Name = Annotated[str, Field(pattern=NAME)]


def now() -> datetime:
    return datetime.now(UTC)


class Message(BaseModel):
    """The base of all messages: frozen, versioned, unknown fields refused so that a newer writer is noticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    v: Literal[1] = VERSION

    def to_bytes(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        """Parse a message's value. Raises ``UnreadableMessage``."""
        try:
            return cls.model_validate_json(payload)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "message"
            raise UnreadableMessage(f"not a {cls.__name__}: {where}: {first['msg']}") from None


class DesiredState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class SeedMode(StrEnum):
    SCAN = "scan"
    REPLAY = "cdc_replay"
    LATEST = "latest"


class LakeRef(BaseModel):
    """Where a lake is, without its secrets.

    Exactly one of ``catalog``, ``catalog_env`` and ``postgres_uri_env`` is set, or none if the file itself contains a
    password: then ``from_file`` is true, and each service takes catalog and properties from its own file.
    ``properties`` are DuckDB S3 settings; a key that ends in ``_env`` names an environment variable.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalog: str | None = None
    catalog_env: str | None = None
    postgres_uri_env: str | None = None
    metadata_schema: str | None = None
    data_path: str | None = None
    properties: dict[str, str] = {}
    from_file: bool = False
    from_defaults: bool = False
    """Credentials among ``defaults.properties`` of the file, which every service has, belong to it."""


class Destination(Message):
    """``viaduck.destinations``: the declared state of one destination, also that it was removed.

    A tombstone means nothing: it has no version, and after partitions were added an older message may be in another.
    """

    pipeline: Name
    destination: Name
    generation: Generation
    routing_value: str
    """The routing value as text, in the spelling that the routing column's type gives it when cast to VARCHAR."""
    state: DesiredState
    lake: LakeRef
    schema_name: str = "main"
    table: str
    seed_mode: SeedMode
    replace: bool = False
    """A reseed was asked for: rows that Viaduck did not write may be replaced, other columns rebuilt."""
    revision: str
    """Changes whenever an operator touches the destination; a parked one is then tried again."""
    seed_at: Snapshot | None = None
    """This life begins at that snapshot of the source (a rewind); None: where ``seed_mode`` says."""
    seed_from: Literal["earliest"] | Spelling | None = None
    """Of a topic, where this life begins instead of at ``source.start``. With ``replace`` the table is emptied; else it
    is rewound, and the rows of records before it stay."""
    drop: bool = False
    """Table and cursor are to be taken away; the state is ``stopped``."""
    managed_by: Literal["file", "api"] = "file"
    """For a control that lost its registry; other services ignore it."""
    removed: bool = False
    """It is gone; what it wrote stays."""
    layout: TableLayout | None = None
    """Of the table that a seed creates; None where nothing was ever said of it."""
    evolution: EvolutionPolicy | None = None
    """Which changes of the source's columns it follows; None for all that can be followed."""
    comments: bool | None = None
    """Whether it gets the source's comments where it follows all changes; None for yes."""
    registry: Count = 0
    """When the registry that says so began with this pipeline, in milliseconds since 1970: a later one knows better."""
    version: Count = 0
    """The registry's count of changes when it was written."""
    upkeep: UpkeepOverride | None = None
    """What of the pipeline's upkeep is otherwise for this one."""
    routed_by: RoutedBy | None = None
    """By what this generation was declared to be routed: an applier whose file routes otherwise moves nothing."""
    damage: Damage | None = None
    """What an upkeep did to its rows, also after an operator has looked at it; until then the state is ``paused``."""

    @property
    def is_damaged(self) -> bool:
        return self.damage is not None and not self.damage.lifted

    @property
    def policy(self) -> EvolutionPolicy:
        return self.evolution or EvolutionPolicy.FOLLOW

    @property
    def rewound_to(self) -> Vector | None:
        """The offsets of a topic at which this life begins with the rows of the records before them."""
        if self.replace or self.seed_from is None or self.seed_from == "earliest":
            return None
        return Vector.parse(self.seed_from)

    @property
    def carries_terms(self) -> bool:
        """Whether it gets the source's NOT NULL, defaults and comments."""
        return self.policy is EvolutionPolicy.FOLLOW

    @property
    def carries_comments(self) -> bool:
        return self.carries_terms and self.comments is not False

    @property
    def order(self) -> tuple[int, int, int]:
        """The highest of a destination is what holds, wherever it lies in the topic and whenever it is read."""
        return self.registry, self.version, self.generation

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.destination}"


class PipelineDocument(Message):
    """``viaduck.pipelines``: a pipeline that was put over REST; without a document it was removed.

    A removal is never a tombstone: brokers delete those after a while, and a service that was away for longer would
    keep the pipeline.
    """

    pipeline: Name
    version: int = Field(ge=1, le=MOST)
    """Of the registry: the highest of a pipeline is what holds."""
    document: dict[str, Any] | None = None
    """The keys of a file that are the pipeline's own. No secrets: only the names of variables and files."""

    @property
    def order(self) -> int:
        """The highest of a pipeline is what holds."""
        return self.version

    @property
    def key(self) -> str:
        return self.pipeline


class Seen(BaseModel):
    """A snapshot of the source and the time of its commit, by the catalog's own clock.

    A history that was replaced, as after a restore from a backup, repeats the number and not the time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    snapshot: Snapshot
    at: datetime


class ItemKind(StrEnum):
    SEED = "seed"
    CHANGES = "changes"
    ADVANCE = "advance"
    PROBE = "probe"
    DROP = "drop"
    UPKEEP = "upkeep"
    """Merge small files, and whatever else an order asks for; rows and position stay as they are."""


class Skipped(BaseModel):
    """Records of a topic that retention took before they were read, and over which a position moved.

    ``offsets``: by partition the first of them, and the one behind the last. ``item``: whose commit moved it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    offsets: dict[Count, tuple[Count, Count]]

    @property
    def records(self) -> int:
        """How many, at most: offsets may have held none."""
        return sum(end - first for first, end in self.offsets.values())


class WorkItem(Message):
    """``viaduck.work``: bring one destination from ``after`` to ``through``, or seed it at ``through``.

    ``expected`` is the stored position that the fence compares with; ``after`` may lie beyond it where the reader knows
    that nothing of this destination changed in between. Both are -1 for a first seed and for a probe.
    """

    item: str
    kind: ItemKind
    pipeline: Name
    destination: Name
    generation: Generation
    expected: Position = NOT_SEEDED
    after: Position = NOT_SEEDED
    through: Snapshot
    rows: int | None = None
    """Changed rows that the reader counted, an upper bound of the net change; None when it did not count. Of a topic
    that is routed, an equal part of the records."""
    pinned: bool = False
    """``through`` is exact (a segment of an append-only range); else the job may go on to the head."""
    expected_at: Spelling | None = None
    """The source's own spelling of ``expected``, and of ``through``: absent where the source has none, as a lake."""
    after_at: Spelling | None = None
    """Of ``after``, where a topic no longer has the records between it and ``expected``, and they are to be skipped."""
    read_at: Spelling | None = None
    """Of a topic that is routed: an applier read the records between ``expected`` and there, and none of them is the
    destination's. Reading begins there; where absent, at ``expected_at``."""
    through_at: Spelling | None = None
    keeps: Literal[True] | None = None
    """Of a seed: rows of records before ``through`` stay, and only those from there on are taken out; absent of any
    other."""
    seen: Seen | None = None
    """The newest snapshot that the reader had seen when it found that nothing changed between ``expected`` and
    ``after``: what it found holds for no other history. None where the two are one."""
    attempt: int = 1
    rows_applied: int | None = None
    """What the cursor had counted at ``expected``; it spares the applier a look, and the fence vouches for it."""
    upkeep: UpkeepOrder | None = None
    """Of an ``upkeep``: what control asks for. None where its reader asks, which is for compaction."""
    routed_by: RoutedBy | None = None
    """By what its reader counted changes, where the generation was declared by another name; else None."""
    published_at: datetime = Field(default_factory=now)

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.destination}"

    @property
    def range(self) -> Range:
        return Range(self.after, self.through)

    @property
    def begin(self) -> SpelledPosition:
        """Where the stored cursor has to be."""
        return SpelledPosition(self.expected, self.expected_at or UNSPELLED)

    @property
    def end(self) -> SpelledPosition:
        return SpelledPosition(self.through, self.through_at or UNSPELLED)

    @property
    def skipped(self) -> Skipped | None:
        """The records that are to be skipped; None where none are."""
        if self.after_at is None:
            return None
        offsets = Vector.parse(self.after_at).beyond(Vector.parse(self.expected_at or "{}"))
        return Skipped(item=self.item, offsets=offsets) if offsets else None

    @model_validator(mode="after")
    def _is_spelled_right(self) -> Self:
        ends = [(self.expected, self.expected_at), (self.after, self.after_at), (self.through, self.through_at)]
        for number, spelled in ends:
            if spelled is not None and not is_spelling_of(spelled, number):
                raise ValueError(f"{spelled[:80]} does not spell position {number}")
        between = self.after_at or self.read_at
        if between is not None:
            begin, at, end = (Vector.parse(each or "{}") for each in (self.expected_at, between, self.through_at))
            is_between = at.covers(begin) and end.covers(at)
            if self.expected_at is None or not is_between or (self.after_at and self.read_at):
                raise ValueError(f"{between[:80]} does not lie between the ends of the item")
        return self


class Outcome(StrEnum):
    APPLIED = "applied"
    ALREADY_APPLIED = "already_applied"
    EMPTY = "empty"
    GAP = "gap"
    FENCED = "fenced"
    FAILED = "failed"
    PARKED = "parked"


class CommitPath(StrEnum):
    """Who wrote a commit: Viaduck itself by DuckLake's specification, or DuckLake's extension."""

    DIRECT = "direct"
    EXTENSION = "extension"


class Progress(Message):
    """``viaduck.progress``: what became of one item."""

    record: Literal["progress"] = "progress"
    pipeline: Name
    destination: Name
    item: str
    kind: ItemKind
    outcome: Outcome
    generation: int
    """The item's generation; for ``fenced`` the generation of the cursor."""
    position: Position | None = None
    """The stored cursor as the applier last saw it; None when it could not be read, -1 when there is none."""
    position_at: Spelling | None = None
    """The source's own spelling of ``position``; absent where it has none."""
    through: Snapshot | None = None
    """For ``applied`` and ``empty``: up to where the destination is now known to be exact."""
    through_at: Spelling | None = None
    """Of ``empty``, the source's own spelling of ``through``; absent where it has none."""
    deleted: int = 0
    upserted: int = 0
    """Rows of the net change that were there at the end of the range, so they were put into the table."""
    inserted: int = 0
    rows_applied: int | None = None
    """Rows deleted and inserted over the destination's life, as its cursor counts them."""
    seconds: dict[str, float] = {}
    """Wall time by phase: ``feed``, ``state``, ``apply``, ``total``."""
    layout: TableLayout | None = None
    """For a seed: the layout that its table has, set or kept. Only where the destination declares something of it."""
    left: tuple[str, ...] | None = None
    """What its table could not be given of the source's NOT NULL, defaults and comments, in words; None where a commit
    did not look at them."""
    commit: CommitPath | None = None
    """For ``applied``: who committed."""
    commit_reason: str | None = None
    """Why the extension committed, where Viaduck would have done so itself otherwise."""
    record_bytes: int | None = None
    """The bytes of value, key and headers of the records that were read, on average; absent for lakes."""
    wear: TableWear | None = None
    """Of a direct commit: what of the table a compaction would replace."""
    skipped: Skipped | None = None
    """What the commit skipped that moved the cursor to ``position``; absent where it skipped nothing."""
    upkeep: UpkeepResult | None = None
    """What an ordered upkeep came to."""
    error: Problem | None = None
    applier: str = ""
    at: datetime = Field(default_factory=now)
    since: datetime | None = None
    """Where a reader says it once more: when the error was first told."""

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.destination}"

    @property
    def reached(self) -> SpelledPosition:
        """The stored cursor, as of no position where it is not known."""
        return SpelledPosition(NOT_SEEDED if self.position is None else self.position, self.position_at or UNSPELLED)


class DeadLetter(Message):
    """``viaduck.dead-letter``: a message that could not be read, and the reason. The payload is base64."""

    topic: str
    partition: int
    offset: int
    key: str | None = None
    reason: str
    payload: str
    by: str
    distrusted: bool = False
    """Its signature did not count: sent again, it would be signed, so it never is."""
    at: datetime = Field(default_factory=now)
