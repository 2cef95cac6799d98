"""The configuration file as values: every key of docs/reference/configuration.md, checked for shape and nothing else.

What needs a second look (duplicates, variables, catalogs, a near key for a typo) is in ``shared.config.loading``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.layout import TableLayout
from shared.contracts.messages import LakeRef, Name, SeedMode
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import UpkeepOverride

PLACEHOLDER = "{routing_value}"
TOPIC = r"^[A-Za-z0-9._-]{1,249}$"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text_key: ClassVar[str | None] = None
    """The key that a single text in the section's place stands for."""


class LakeTable(Section):
    """A table in a lake: what ``source`` and each of ``destinations`` have in common."""

    name: str = ""
    catalog: str | None = Field(default=None, repr=False)
    catalog_env: str | None = None
    postgres_uri_env: str | None = None
    metadata_schema: str | None = None
    data_path: str | None = None
    schema_name: str = Field(default="main", alias="schema", min_length=1)
    table: str = ""
    properties: dict[str, str] = Field(default={}, repr=False)

    @property
    def lake(self) -> LakeRef:
        return LakeRef(
            catalog=self.catalog,
            catalog_env=self.catalog_env,
            postgres_uri_env=self.postgres_uri_env,
            metadata_schema=self.metadata_schema,
            data_path=self.data_path,
            properties=self.properties,
        )


class Source(LakeTable):
    kind: Literal["lake"] = "lake"
    table: str = Field(min_length=1)
    retained_seconds: float | None = Field(default=None, gt=0)
    """For how long its owner promises to keep each snapshot; None where nothing is promised."""


class TopicColumn(Section):
    name: str = Field(min_length=1)
    path: str
    type: str
    required: bool = False


class TopicRegistry(Section):
    """The registry of the schemas that records name."""

    url: str | None = Field(default=None, repr=False)
    url_env: str | None = None
    properties: dict[str, str] = Field(default={}, repr=False)


class TopicFormat(Section):
    value: Literal["json", "json_schema", "avro", "protobuf", "debezium", "text", "bytes"] = "json"
    encoding: Literal["json", "json_schema", "avro", "protobuf"] = "json"
    """Of values that are change events of Debezium."""
    key: Literal["none", "text", "bytes", "json", "json_schema", "avro", "protobuf"] = "none"
    registry: TopicRegistry = TopicRegistry()


class TopicStart(Section):
    """Where a life begins: at ``position``, unless a time or offsets by partition are given."""

    text_key = "position"

    position: Literal["earliest", "latest"] = "earliest"
    timestamp: str | None = None
    offsets: dict[str, str] = {}


class TopicSource(Section):
    """A Kafka topic as ``source`` of a file whose ``kind`` is ``kafka``."""

    kind: Literal["kafka"]
    topic: str = Field(pattern=TOPIC)
    bootstrap_servers: str | None = None
    """None: the deployment's own broker."""
    properties: dict[str, str] = Field(default={}, repr=False)
    start: TopicStart = TopicStart()
    isolation: Literal["read_committed"] = "read_committed"
    format: TopicFormat = TopicFormat()
    columns: tuple[TopicColumn, ...] = ()
    infer: Literal["follow", "freeze"] = "follow"
    metadata: tuple[Literal["partition", "offset", "timestamp", "key", "headers", "inserted_at"], ...] = (
        "partition", "offset", "timestamp",
    )  # fmt: skip
    max_columns: int = Field(default=500, ge=1, le=5_000)
    max_record_bytes: int = Field(default=64_000_000, ge=1, le=256_000_000)
    on_bad: Literal["reject", "park"] = "reject"
    on_gap: Literal["park", "reseed", "skip"] = "park"
    """``skip``: go on at the oldest record that is retained. It says nothing of a topic that is another one."""


class Flush(Section):
    """When records of a topic are written: as soon as one of these is reached."""

    rows: int = Field(default=500_000, ge=1)
    bytes: str = "100MB"
    seconds: float = Field(default=60.0, gt=0)


class Routing(Section):
    field: str = Field(min_length=1)
    key_columns: tuple[str, ...] = ()
    seed_mode: SeedMode = SeedMode.SCAN
    on_delete: Literal["ignore", "park"] = "ignore"
    on_update: Literal["park", "append"] = "park"
    on_gap: Literal["park", "reseed"] = "park"
    """When the source's history no longer reaches back to a destination, or the table was dropped and created again."""

    @property
    def append_only(self) -> bool:
        return not self.key_columns

    @property
    def routed_by(self) -> RoutedBy:
        """The part that messages carry."""
        return RoutedBy(field=self.field.lower(), append_only=self.append_only)


class Layout(Section):
    """How the tables of destinations are laid out (``shared.config.table_layout``)."""

    partitioned_by: str = ""
    sorted_by: str = ""
    encrypted: bool = False


class OwnLayout(Section):
    """The same of one destination; what it leaves out is the pipeline's."""

    partitioned_by: str | None = None
    sorted_by: str | None = None
    encrypted: bool | None = None

    def over(self, common: TableLayout) -> TableLayout:
        return common.model_copy(update=self.model_dump(exclude_none=True))


class Evolution(Section):
    """Which changes of the source's columns destinations follow."""

    policy: EvolutionPolicy = EvolutionPolicy.FOLLOW
    comments: bool = True
    """Whether comments of the table and of its columns are carried, where ``policy`` is to follow."""
    at_once: int = Field(default=50, ge=1)
    """Advances in flight at a time: a column that is added makes one for each quiet destination."""


class OwnEvolution(Section):
    """The same of one destination; what it leaves out is the pipeline's."""

    policy: EvolutionPolicy | None = None
    comments: bool | None = None

    def over(self, common: Evolution) -> Evolution:
        return common.model_copy(update=self.model_dump(exclude_none=True))


class DestinationUpkeep(UpkeepOverride, Section):
    """What of ``upkeep`` one destination has for itself, as a section of the file."""


class Upkeep(Section):
    """How a pipeline's destinations are kept small. Durations are texts such as ``30d``, or ``off``."""

    compact_files: int = Field(default=100, ge=2)
    """Small or worn files of a table that ask for its compaction."""
    compact_dead_share: float = Field(default=0.5, gt=0, le=1)
    """Deleted rows among all rows that a reader of the table reads, from which on they ask for it."""
    compact_after_applies: int | None = Field(default=None, ge=0)
    """The latest; 0 for never. None: ``reader.upkeep_after_applies``."""
    clean_after: str = "off"
    expire_after: str = "off"
    keep_snapshots: int = Field(default=20, ge=1)
    orphans_after: str = "off"
    whole_lake: bool = False
    """Whether expiry and orphans may touch tables of a lake that are not Viaduck's."""
    every: str = "1d"
    """Between two runs of what clean, expire and orphans ask for; compaction goes by need."""
    hours: str = ""
    most_files: int = Field(default=5_000, ge=1)
    most_snapshots: int = Field(default=5_000, ge=1)
    at_once: int = Field(default=2, ge=1)


class FileDestination(LakeTable):
    id: Name
    routing_value: str
    seed_mode: SeedMode | None = None
    layout: OwnLayout = OwnLayout()
    evolution: OwnEvolution = OwnEvolution()
    upkeep: DestinationUpkeep | None = None


class Template(LakeTable):
    """What a destination that appears by itself is made from; ``PLACEHOLDER`` stands for its routing value."""

    id: str = PLACEHOLDER
    seed_mode: SeedMode | None = None
    layout: OwnLayout = OwnLayout()
    evolution: OwnEvolution = OwnEvolution()
    create_database: bool = False

    @property
    def is_given(self) -> bool:
        return (self.catalog or self.catalog_env or self.postgres_uri_env) is not None


class Appear(Section):
    """What becomes of routing values that have no destination."""

    policy: Literal["off", "propose", "create"] = "off"
    allow: str | None = None
    """A regular expression for the whole value; None allows every value with a safe name."""
    per_hour: int = Field(default=20, ge=0)
    total: int = Field(default=1000, ge=0)


class Defaults(Section):
    properties: dict[str, str] = Field(default={}, repr=False)


class Poll(Section):
    interval_seconds: float = Field(default=5.0, ge=0.05)


class Server(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    token_env: str | None = None
    public_url: str | None = None
    """The address of control behind a reverse proxy; then no request counts as local."""
    metrics: Literal["local", "token", "open"] = "local"
    allowed_hosts: tuple[str, ...] = ()
    """Patterns of hosts that a destination which comes over REST may name; empty allows every one."""
    allowed_paths: tuple[str, ...] = ()
    allowed_variables: tuple[str, ...] = ()


class Reader(Section):
    port: int = Field(default=8001, ge=0, le=65535)
    max_rows_in_flight: int = Field(default=2_000_000, ge=1)
    segment_rows: int = Field(default=500_000, ge=1)
    advance_after_seconds: float = Field(default=3600.0, gt=0)
    confirm_within_seconds: float = Field(default=120.0, gt=0)
    """An item without an answer for this long is planned again."""
    upkeep_after_applies: int = Field(default=1_000, ge=0)
    """A destination's table is compacted after so many transactions at the latest; 0 for never."""


CommitChoice = Literal["auto", "direct", "extension"]


class Applier(Section):
    port: int = Field(default=8002, ge=0, le=65535)
    max_open_lakes: int = Field(default=200, ge=1)
    """Attached lakes that one Spark Python worker keeps open between jobs."""
    threads_per_worker: int = Field(default=2, ge=1)
    max_threads_per_worker: int = Field(default=32, ge=1)
    """Reached where destinations are far, so that threads wait more than they work."""
    deadline_seconds: float = Field(default=120.0, gt=0)
    """No destination transaction may be older than this when it commits (docs/explanation/hazards.md, H6)."""
    seed_deadline_seconds: float = Field(default=3600.0, gt=0)
    """The same of a seed, where it is more."""
    stall_seconds: float = Field(default=10.0, gt=0)
    """An apply that moves no bytes and uses no CPU for this long is reported as failed."""
    memory_limit: str = "1GB"
    """Of each DuckDB instance; beyond it, it spills to disk."""
    commit: CommitChoice = "auto"
    """``auto``: directly where that can be done, else by DuckLake's extension. ``direct``: an apply that can't be
    committed directly fails and says why. ``extension``: never directly."""


class Health(Section):
    every_seconds: float = Field(default=900.0, ge=0, le=31_536_000)
    """How often the catalogs are asked how their lakes fare; 0 for never."""


class MetricsLimits(Section):
    most_destinations: int = Field(default=500, ge=0)
    """So many have gauges of their own for their lakes; of more, only the worst."""


class Web(Section):
    enabled: bool = True
    port: int | None = None


class State(Section):
    table: str = "_viaduck_state"


class Partition(Section):
    mode: Literal["all", "explicit", "hash"] = "all"
    include: tuple[str, ...] = ()
    total: int = Field(default=1, ge=1)
    ordinal: int = Field(default=0, ge=0)


class Instance(Section):
    id: str = "viaduck-0"
    partition: Partition = Partition()


class Kafka(Section):
    bootstrap_servers: str | None = None
    topic_prefix: str = "viaduck"
    partitions: int = Field(default=12, ge=1)
    replication_factor: int = Field(default=1, ge=1)
    signing: Literal["on", "off"] = "on"
    signing_key_env: str | None = None
    signing_key_file: str | None = None
    former_signing_key_env: str | None = None
    """While the key is being changed: what this one signed counts too."""
    former_signing_key_file: str | None = None
    properties: dict[str, str] = Field(default={}, repr=False)


class Spark(Section):
    master: str = "local[*]"
    conf: dict[str, str] = Field(default={}, repr=False)


class Registry(Section):
    url: str | None = Field(default=None, repr=False)
    url_env: str | None = None


COPIES = "pipelines"
"""The folder of the state directory that holds the pipelines from REST, as files."""


class Config(Section):
    """A whole file. ``path`` is the file's own; relative paths have been made absolute against its folder."""

    path: Path
    reserved: frozenset[str] = frozenset()
    """Variables that the deployment's files use for themselves, besides those of this one."""
    pipeline: Name
    source: Source
    routing: Routing
    topic: TopicSource | None = None
    """What is read, where that is a topic: ``source`` then holds no lake, and ``table`` is the topic's name."""
    flush: Flush = Flush()
    upkeep: Upkeep = Upkeep()
    destinations: tuple[FileDestination, ...] = ()
    template: Template = Template()
    layout: Layout = Layout()
    evolution: Evolution = Evolution()
    appear: Appear = Appear()
    defaults: Defaults = Defaults()
    poll: Poll = Poll()
    server: Server = Server()
    reader: Reader = Reader()
    applier: Applier = Applier()
    health: Health = Health()
    metrics: MetricsLimits = MetricsLimits()
    web: Web = Web()
    state: State = State()
    instance: Instance = Instance()
    kafka: Kafka = Kafka()
    spark: Spark = Spark()
    registry: Registry = Registry()
    state_dir: Path

    @property
    def table_layout(self) -> TableLayout:
        """What holds for a destination that says nothing of its own."""
        return TableLayout.model_validate(self.layout.model_dump())

    @property
    def over_rest(self) -> bool:
        """Whether the pipeline came over REST: its file is a copy."""
        return self.path.parent == self.state_dir / COPIES
