"""What the routes take and give, beyond a destination's status."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    StrictBool,
    Tag,
    ValidatorFunctionWrapHandler,
    model_validator,
)

from services.control.model.declared import OF_A_LAKE, as_put
from services.control.operations.destination_entry import EXAMPLE as ENTRY
from services.control.operations.destination_entry import Entry, EntryEvolution, EntryLayout
from services.control.operations.long_operations import LongOperation
from services.control.store.audit_log import RegistryRebuilt
from services.control.view.destination_status import EXAMPLE, PipelineStatus, Status, View, status
from services.control.web import problems
from services.control.web.problems import FieldProblem
from shared.contracts.messages import CommitPath, LakeRef, Problem, SeedMode
from shared.contracts.projection import project
from shared.contracts.upkeep import UpkeepOrder, UpkeepOverride, UpkeepResult, UpkeepStep

T = TypeVar("T")

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
PipelineName = Annotated[str, Path(pattern=NAME, description="The pipeline's name", examples=["events"])]
DestinationId = Annotated[str, Path(pattern=NAME, description="The destination's id", examples=["quacksworth-lake"])]


class Page(BaseModel, Generic[T]):
    """A part of a list; ``next`` goes into ``after`` for the following one, null at the end."""

    items: list[T]
    next: str | None


class PipelineListed(PipelineStatus):
    """A pipeline, and who may change it: ``file`` where a file declares it, ``api`` where it came over REST."""

    managed_by: Literal["file", "api"]


class PipelineDetail(PipelineListed):
    """With what was put over REST, if it was. ``version`` is the ETag."""

    rebuilt: RegistryRebuilt | None = None
    """Null where the registry was never lost."""
    version: int | None = None
    author: str | None = None
    """Who changed it last."""
    updated_at: datetime | None = None
    document: dict[str, Any] | None = None
    """The keys of a file that are the pipeline's own."""


DETAIL: dict[str, Any] = {
    **EXAMPLE, "version": 7, "author": "olga", "updated_at": "2026-01-01T00:00:00Z", "name": "",
    "catalog_env": "QUACKSWORTH_CATALOG", "data_path": "s3://quacksworth-data/",
    "properties": {"s3_region": "eu-central-1"},
    "lake": {
        "catalog_env": "QUACKSWORTH_CATALOG", "data_path": "s3://quacksworth-data/",
        "properties": {"s3_region": "eu-central-1"}, "from_file": False, "from_defaults": False,
    },
    "schema": "main", "table": "events", "seed_mode": "scan", "rewound_to": 12,
    "layout": {"partitioned_by": "year(ts)"}, "evolution": {"policy": "additive"},
}  # fmt: skip
"""A destination, for OpenAPI, where FastAPI leaves out whatever is null."""


class LakeAsPut(BaseModel):
    """Where an entry says that its lake is."""

    catalog: str | None = None
    catalog_env: str | None = None
    postgres_uri_env: str | None = None
    metadata_schema: str | None = None
    data_path: str | None = None


class Detail(LakeAsPut, Status):
    """A destination's status, and what is registered of it. ``version`` is the ETag."""

    model_config = ConfigDict(json_schema_extra={"examples": [DETAIL]})

    version: int
    author: str | None
    """Who changed it last."""
    updated_at: datetime
    name: str
    properties: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """This and the keys of ``LakeAsPut``: as they were put, so that what GET answers can be changed and put."""
    lake: LakeRef
    """Where its lake is, with what the pipeline's defaults add."""
    schema_name: str = Field(serialization_alias="schema")
    table: str
    seed_mode: SeedMode
    layout: EntryLayout = EntryLayout()
    """As it was put; what is left out is as the pipeline says."""
    evolution: EntryEvolution = EntryEvolution()
    """The same."""
    upkeep: UpkeepOverride | None = None
    """As it was put: what of the pipeline's upkeep is otherwise for this one."""
    rewound_to: int | None
    seed_from: str | None = None
    """Of a topic, where its present life began if not at `source.start`: `earliest`, or offsets by partition."""


class EntryShown(LakeAsPut):
    """The keys of a `destinations` entry as they were put. Those that were not are left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [ENTRY]})

    routing_value: str | bool | int | float
    name: str = ""
    schema_name: str = Field(default="main", alias="schema")
    table: str | None = None
    properties: dict[str, str | bool | int | float] = {}
    seed_mode: str | None = None
    layout: EntryLayout = EntryLayout()
    evolution: EntryEvolution = EntryEvolution()
    upkeep: UpkeepOverride | None = None


AS_DECLARED = ("name", "lake", "schema_name", "table", "seed_mode", "upkeep")


def detail(view: View, destination: str) -> Detail:
    """A destination as it is shown. Raises ``HttpProblem`` where there is none of that id."""
    held = view.destinations[require_known(view, destination)]
    declared = held.declared
    put = as_put(declared)
    as_it_was_put: dict[str, Any] = {name: put.get(name) for name in OF_A_LAKE}
    return Detail(
        **status(view, destination).model_dump(),
        **as_it_was_put,
        **{name: getattr(declared, name) for name in AS_DECLARED},
        properties=put.get("properties", {}),
        version=held.version,
        author=held.revision.author,
        updated_at=held.revision.at,
        layout=EntryLayout.model_validate(put.get("layout", {})),
        evolution=EntryEvolution.model_validate(put.get("evolution", {})),
        rewound_to=held.seed_at,
        seed_from=held.seed_from,
    )


def require_known(view: View, destination: str) -> str:
    """``destination`` where there is one of that id. Raises ``HttpProblem``."""
    if destination not in view.destinations:
        hint = f"GET /v1/pipelines/{view.pipeline}/destinations lists them"
        raise problems.HttpProblem("not_found", f"the pipeline {view.pipeline} has no destination {destination}", hint)
    return destination


ENTRY_KEYS = frozenset(field.alias or name for name, field in Entry.model_fields.items())
READ_ONLY = frozenset(field.serialization_alias or name for name, field in Detail.model_fields.items()) - ENTRY_KEYS


class PutEntry(Entry):
    """The keys of a `destinations` entry of the configuration file (docs/reference/configuration.md).

    What a GET of the destination answers may be sent back: fields that are read-only there change nothing, and are
    refused where they differ from what is.
    """

    _shown: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _apart(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(given, dict):
            return handler(given)
        made = handler({name: value for name, value in given.items() if name not in READ_ONLY})
        made._shown = {name: value for name, value in given.items() if name in READ_ONLY}
        return made

    @property
    def shown(self) -> Mapping[str, Any]:
        """The read-only fields that came with it."""
        return self._shown


Snapshot = Annotated[int, Field(strict=True, ge=0, le=2**62, description="A snapshot that the source retains")]
Offset = Annotated[int, Field(strict=True, ge=0, lt=10**18)]
PartitionName = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Offsets = Annotated[
    dict[PartitionName, Offset],
    Field(min_length=1, max_length=10_000, description="Of a topic: offsets by partition; the others stay"),
]


def _kind_of_position(to: object) -> str:
    return "offsets" if isinstance(to, dict) else "snapshot"


class Rewind(BaseModel):
    """Where a new life is to begin."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"to": 12}, {"to": {"0": 100, "1": 98}}]})

    to: Annotated[
        Annotated[Snapshot, Tag("snapshot")] | Annotated[Offsets, Tag("offsets")], Discriminator(_kind_of_position)
    ]

    @property
    def position(self) -> int | dict[int, int]:
        """``to``, with numbers as partitions."""
        return self.to if isinstance(self.to, int) else {int(each): offset for each, offset in self.to.items()}


class Reseed(BaseModel):
    """Where a new life of a topic's destination is to begin: at `source.start`, or at the oldest record."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"from": "earliest"}]})

    begin: Literal["start", "earliest"] = Field(default="start", alias="from")


class UpkeepAsked(BaseModel):
    """Which steps; those that the policy does not switch off where `steps` is left out."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"steps": ["compact", "clean"]}]})

    steps: Annotated[list[UpkeepStep], Field(min_length=1, max_length=4)] | None = None
    dry_run: StrictBool = Field(default=False, description="Tell what would be done, and do nothing")

    @property
    def order(self) -> UpkeepOrder:
        """Each step once, in the order in which they are done."""
        steps = None if self.steps is None else tuple(each for each in UpkeepStep if each in self.steps)
        return UpkeepOrder(steps=steps, dry_run=self.dry_run)


class OperationStatus(BaseModel):
    """An action that takes longer than a request. ``failed`` may still succeed once the cause is corrected."""

    id: str
    pipeline: str
    destination: str
    kind: Literal["reseed", "rewind", "drop", "upkeep"]
    state: Literal["running", "succeeded", "failed", "superseded"]
    generation: int
    to: int | None
    author: str | None
    created_at: datetime
    finished_at: datetime | None
    error: Problem | None
    upkeep: UpkeepResult | None = None
    """What an upkeep came to; null while it runs."""


def operation_status(pipeline: str, operation: LongOperation) -> OperationStatus:
    return project(OperationStatus, operation, pipeline=pipeline, to=operation.seed_at, upkeep=operation.result)


class StampedSnapshot(BaseModel):
    """A snapshot of a destination's lake, and the range of the source whose apply made it."""

    snapshot: int
    at: datetime
    """When it was committed, by the destination's catalog."""
    kind: str
    generation: int
    after: int
    through: int
    """Its position: it shows the source as of this snapshot."""


class Commit(StampedSnapshot):
    """A snapshot of a destination, with what Viaduck wrote on it: an apply of `(after, through]`, or a seed."""

    message: str
    item: str
    deleted: int
    inserted: int
    path: CommitPath | None = None
    """Who committed it: Viaduck itself (`direct`) or DuckLake's extension; null where its stamp does not say."""
    columns: tuple[str, ...] = ()
    """What became of the table's columns, such as `rename v to w`."""
    source_at: datetime | None = None
    """When the source committed `through`; null where the source no longer retains it, or does not answer."""
    seconds: float | None = None
    """How long it took to read (shared with others) and to apply; null where control has not heard it, or forgot."""


class Check(BaseModel):
    """What a look at the lake found; ``ok`` null means that it could not be looked at from here."""

    check: str
    ok: bool | None
    message: str
    hint: str
    type: str | None


class Validation(BaseModel):
    """``valid``: nothing that was checked speaks against it."""

    valid: bool
    checks: list[Check]


class Line(BaseModel):
    """What became of one line of an import: the HTTP status, and where it fails the problem, of a PUT of it."""

    line: int
    id: str | None
    status: int
    type: str | None = None
    detail: str | None = None
    hint: str | None = None
    fields: list[FieldProblem] = []


class Imported(BaseModel):
    """``applied`` is false where all or nothing was asked for and a line failed: then nothing was changed, and lines
    that nothing speaks against have the status 424. ``failed`` does not count those."""

    applied: bool
    created: int
    changed: int
    failed: int
    lines: list[Line]
