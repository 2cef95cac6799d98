"""What a Spark task is given and what it gives back; plain values that pickle."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.applier.records.record_format import RecordFormat
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice, Routing
from shared.config.upkeep_rules import Policy, least_age_s
from shared.contracts.messages import Destination, ItemKind, Progress, WorkItem
from shared.contracts.reports import UnroutedRecords
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import UpkeepResult, UpkeepStep
from shared.kafka.schema_registry import RegistrySettings
from shared.kafka.settings import KafkaSettings

UNKNOWN = RoutedBy(field="")
"""Agrees with nothing that was declared."""


@dataclass(frozen=True)
class SourceTable:
    """The table that a pipeline reads."""

    lake: ResolvedLake
    schema: str
    table: str
    routing: Routing

    @property
    def routed_by(self) -> RoutedBy:
        return self.routing.routed_by


@dataclass(frozen=True)
class SourceTopic:
    """The topic that a pipeline reads. ``rejected`` is the topic, of the deployment's broker ``own``, that takes the
    records of which no row can be made; a transaction holds about ``rows`` records or ``bytes`` at most."""

    settings: KafkaSettings
    table: str
    form: RecordFormat
    rows: int
    bytes: int
    own: KafkaSettings
    rejected: str
    parks_bad: bool = False
    registry: RegistrySettings | None = None
    skips_gaps: bool = False
    """Whether records that are gone may be skipped; else they are an error."""
    routing: str | None = None
    """The column that tells whose a record is; None where one destination takes them all."""
    routed_by: RoutedBy = UNKNOWN


Source = SourceTable | SourceTopic


@dataclass(frozen=True)
class UpkeepTask:
    """What upkeep does for a destination, with what only the applier's driver knows of the lakes beside it."""

    steps: tuple[UpkeepStep, ...] = (UpkeepStep.COMPACT,)
    dry_run: bool = False
    policy: Policy = field(default_factory=Policy)
    ours: frozenset[tuple[str, str]] = frozenset()
    """(schema, table) in lower case of each known destination in the lake."""
    refused: tuple[tuple[UpkeepStep, str], ...] = ()
    """Steps that would harm another lake or contradict another policy, and why; all of them where an upkeep has
    damaged a destination of the pipeline."""

    def refusal(self, step: UpkeepStep) -> str | None:
        return next((why for each, why in self.refused if each is step), None)


@dataclass(frozen=True)
class Target:
    """One destination of a task, with the item that is to be done for it."""

    item: WorkItem
    destination: Destination
    lake: ResolvedLake
    looks_first: bool = False
    """It is unknown whether the cursor is where the item expects it: it is read before the source is."""
    upkeep: UpkeepTask = field(default_factory=UpkeepTask)
    """Of an item of kind ``upkeep``."""
    is_spelled: bool = False
    """Whether its source spells positions, so that its cursor holds a spelling too."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a worker process, from the section ``applier`` of the configuration."""

    max_open_lakes: int = 200
    threads: int = 2
    most_threads: int = 32
    """While they wait for catalogs and stores that are far."""
    deadline_s: float = 120.0
    seed_deadline_s: float = 3600.0
    stall_s: float = 10.0
    """A destination that has not come back for that long, while the others have, no longer holds them up: it is
    answered for, so that its status says so."""
    memory_limit: str = "1GB"
    commit: CommitChoice = "auto"

    def deadline_of(self, kind: ItemKind) -> float:
        """Seconds after which a transaction is not committed any more (H6). A seed takes as long as its rows do."""
        return max(self.deadline_s, self.seed_deadline_s) if kind is ItemKind.SEED else self.deadline_s

    @property
    def least_age_s(self) -> float:
        """Seconds below which upkeep expires no snapshot and deletes no file (H6)."""
        return least_age_s(self.deadline_s, self.seed_deadline_s)


@dataclass(frozen=True)
class Task:
    """A share of a job: destinations whose items are of one kind and read the same source."""

    kind: ItemKind
    source: Source
    targets: tuple[Target, ...]
    limits: Limits = Limits()
    applier: str = ""
    counts_shared: bool = True
    """One task of a job counts what all of them read, for the metrics."""
    routed: frozenset[str] = frozenset()
    """The routing values of all destinations of the pipeline, where the source is a topic that is routed."""
    answers: str | None = None
    """A folder for answers that are there before the task's end; None where the driver would not find them."""


@dataclass
class Tally:
    """What one task read, and what it found in that."""

    rows_read: int = 0
    read_seconds: float = 0.0
    routing_mutations: int = 0
    conflicts_resolved: int = 0


@dataclass(frozen=True)
class WorkerReport:
    """What a worker process says of itself with each task, for the driver's metrics."""

    pid: int
    open_lakes: int = 0
    evictions: int = 0
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class RecordCounts:
    """What became of the records of a topic in one transaction."""

    landed: int = 0
    rejected: int = 0
    tombstones: int = 0
    rescued: int = 0
    """Values that went to ``_rescued``."""
    columns_added: int = 0
    bytes_read: int = 0
    skipped: int = 0
    """Records that were gone before they were read."""

    @property
    def record_bytes(self) -> int | None:
        """Of one of them, on average; None where none was read."""
        read = self.landed + self.rejected
        return -(-self.bytes_read // read) if read else None


@dataclass(frozen=True)
class TargetResult:
    """The outcome of one target, and what only the metrics want to know."""

    progress: Progress
    matched: int = 0
    """Upserted rows whose key the destination held before."""
    deletes: int = 0
    """Touched keys that are not there at the end of the range."""
    write_seconds: float | None = None
    upkeep: UpkeepResult | None = None
    records: RecordCounts | None = None


@dataclass(frozen=True)
class TaskResult:
    results: tuple[TargetResult, ...]
    report: WorkerReport
    log: tuple[str, ...] = field(default=())
    """Lines for the driver's log: what an operator should know, such as a damaged destination."""
    unrouted: tuple[UnroutedRecords, ...] = ()
    """Of each range that was read of a topic, what no destination takes."""
