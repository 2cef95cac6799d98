"""Converts a destination's entry from REST to what the registry holds; checks it like an entry of a file, against the
source, the other destinations, and the lake itself.

Secrets are refused: they would be stored in the registry and published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from services.control.model.conflicts import PipelineContext, UniquenessIndex
from services.control.model.declared import identity
from services.control.model.lifecycle import BY_ANY, Declared, Refused, Registered
from services.control.model.problems import FieldError, InvalidEntry
from services.control.operations.preflight import PreflightFinding, Probe
from services.control.operations.reconciler import Reconciler
from services.control.operations.topic_rewind import BY_OFFSET
from shared.config import table_layout
from shared.config.catalogs import SQLITE, CatalogRefused, has_password, parse_catalog
from shared.config.config_errors import UNWRITABLE, Mistakes
from shared.config.declared import Lakes, entry_lake
from shared.config.lake_rules import ConfigContext, check_access, check_lake, section_of, text_of
from shared.config.model import Config, OwnEvolution, OwnLayout
from shared.config.path_overlap import THE_SOURCES, table_names
from shared.config.secrets import SECRET_PROPERTIES
from shared.config.topic_rules import column_that_routes
from shared.config.upkeep_rules import faults, least_age_of
from shared.contracts.errors import DependencyError
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import Name, SeedMode
from shared.contracts.upkeep import UpkeepOverride
from shared.lake.catalog.reader import CatalogReader
from shared.lake.checks.source import SourceLook, canonical_values

CATALOGS = ("catalog", "catalog_env", "postgres_uri_env")

SECRET = "secret_in_request"  # noqa: S105 - the name of a problem
NOT_ALLOWED = "not_allowed"
RELATIVE = "a relative path, and there is no file that it could be relative to; write an absolute path"

Section = Mapping[str, Any]

Text = Annotated[str, Field(max_length=4_096)]
Short = Annotated[str, Field(max_length=200)]
Value = Annotated[str | bool | int | float, Field(union_mode="left_to_right")]

EXAMPLE: dict[str, Any] = {
    "routing_value": "quacksworth",
    "catalog_env": "QUACKSWORTH_CATALOG",
    "data_path": "s3://quacksworth-data/",
    "properties": {"s3_region": "eu-central-1"},
}


class EntryLayout(BaseModel):
    """How its table is laid out; what is left out is as the pipeline says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partitioned_by: Annotated[str, Field(max_length=table_layout.LONGEST)] | None = None
    sorted_by: Annotated[str, Field(max_length=table_layout.LONGEST)] | None = None
    encrypted: bool | None = None


class EntryEvolution(BaseModel):
    """Which changes of the source's columns it follows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: EvolutionPolicy | None = None
    comments: bool | None = None
    """Whether it gets the source's comments."""


class Entry(BaseModel):
    """The keys of a `destinations` entry of the configuration file (docs/reference/configuration.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [EXAMPLE]})

    id: Name | None = None
    routing_value: Annotated[str, Field(max_length=4_096)] | bool | int | float
    name: Short = ""
    catalog: Annotated[str, Field(max_length=4_096, min_length=1)] | None = Field(default=None, repr=False)
    catalog_env: Short | None = None
    postgres_uri_env: Short | None = None
    metadata_schema: Annotated[str, Field(max_length=200, min_length=1)] | None = None
    data_path: Annotated[str, Field(max_length=4_096, min_length=1)] | None = None
    schema_name: Annotated[str, Field(alias="schema", max_length=200, min_length=1)] = "main"
    table: Annotated[str, Field(max_length=200, min_length=1)] | None = None
    properties: dict[Short, Value] = Field(default={}, max_length=50, repr=False)
    seed_mode: str | None = Field(default=None, pattern="^(scan|cdc_replay|replay|latest)$")
    layout: EntryLayout = EntryLayout()
    evolution: EntryEvolution = EntryEvolution()
    upkeep: UpkeepOverride | None = None


class Environment(dict[str, str]):
    """Variables of this process. A variable that only the appliers have gets a placeholder."""

    def __missing__(self, key: str) -> str:
        return "dbname=unknown"

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key else default


def declare_entry(destination: str, entry: Entry, routing_value: str, lakes: Lakes) -> Declared:
    """The registry's form of an entry. ``routing_value``: in the spelling of the routing column's type.

    Raises ``InvalidEntry``.
    """
    section, config = _section(entry), lakes.config
    wrong = [
        *_misnamed(destination, entry),
        *_layout_faults(entry),
        *_upkeep_faults(entry, config),
        *(unquotable := [*_unwritable(entry), *secret(section, config.path.parent)]),
    ]
    lake = None if unquotable else entry_lake(section, config)
    if lake is not None:
        wrong += _unusable(section, dict(lakes.refusals(destination, routing_value, lake)), lakes)
    if wrong or lake is None:
        raise InvalidEntry(wrong)
    evolution = OwnEvolution.model_validate(entry.evolution.model_dump()).over(config.evolution)
    return Declared(
        id=destination,
        routing_value=routing_value,
        lake=lake,
        identity=identity(lake, config.path.parent, lakes.environ),
        schema_name=entry.schema_name,
        table=entry.table or config.source.table,
        seed_mode=_seed_mode(entry, config),
        routed_by=config.routing.routed_by,
        name=entry.name,
        layout=OwnLayout.model_validate(entry.layout.model_dump()).over(config.table_layout),
        written=entry.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"id"}),
        upkeep=entry.upkeep,
        evolution=evolution.policy,
        comments=evolution.comments,
    )


def _section(entry: Entry) -> dict[str, Any]:
    """The entry as the rules of a file's entries read it."""
    read = {*CATALOGS, "data_path", "metadata_schema", "schema_name", "table"}
    given = entry.model_dump(by_alias=True, exclude_none=True, include=read)
    return {**given, "properties": {name: _text(value) for name, value in entry.properties.items()}}


def _text(value: str | bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seed_mode(entry: Entry, config: Config) -> SeedMode:
    if entry.seed_mode is None or config.topic is not None:
        return config.routing.seed_mode
    return SeedMode.REPLAY if entry.seed_mode == "replay" else SeedMode(entry.seed_mode)


def _misnamed(destination: str, entry: Entry) -> Iterator[FieldError]:
    if entry.id is not None and entry.id != destination:
        yield FieldError("id", f"is {entry.id!r}, and the path names {destination!r}; leave it out")


def _layout_faults(entry: Entry) -> Iterator[FieldError]:
    """Of its own layout. The pipeline's was looked at with its file."""
    if own := entry.layout.model_dump(exclude_none=True):
        yield from (FieldError(f"layout.{key}", said) for key, said in table_layout.faults(own))


def _upkeep_faults(entry: Entry, config: Config) -> Iterator[FieldError]:
    if entry.upkeep is None:
        return
    own = entry.upkeep.model_dump(exclude_none=True)
    yield from (FieldError(f"upkeep.{key}", said) for key, said in faults(own, least_age_of(config)))


def _unwritable(entry: Entry) -> Iterator[FieldError]:
    """Texts that neither a registry nor a catalog can hold."""
    written = {**entry.model_dump(by_alias=True), "routing_value": _text(entry.routing_value)}
    faults = [
        FieldError(key, "holds a null character or half of a surrogate pair")
        for key, value in written.items()
        if isinstance(value, str) and UNWRITABLE.search(value)
    ]
    properties = [*entry.properties, *map(_text, entry.properties.values())]
    if not faults and any(map(UNWRITABLE.search, properties)):
        faults = [FieldError("properties", "hold a null character")]
    yield from faults


def _unusable(section: Section, refused: Mapping[str, str], lakes: Lakes) -> Iterator[FieldError]:
    """What it may not name, then what is wrong with it; one for each field."""
    yield from (FieldError(path, said, NOT_ALLOWED) for path, said in refused.items())
    config, seen, mistakes = lakes.config, lakes.limits.visible(lakes.environ), Mistakes()
    check_lake(section, "", ConfigContext(Environment(seen), config.path.parent), mistakes)
    check_access(section, "", config.defaults.properties, mistakes)
    yield from (FieldError(path, text) for path, text in mistakes.items() if path not in refused)
    yield from relative(section, seen) if lakes.over_rest else ()


def secret(section: Section, folder: Path) -> Iterator[FieldError]:
    """Secrets among a lake's values. To be looked for first, so that no other message quotes one."""
    for name in section_of(section, "properties"):
        if name.lower() in SECRET_PROPERTIES:
            yield FieldError(f"properties.{name}", f"is a secret; write {name}_env with a variable's name", SECRET)
    catalog = text_of(section, "catalog")
    try:
        holds = catalog is not None and has_password(parse_catalog(catalog, folder))
    except CatalogRefused:
        return
    if holds:
        yield FieldError("catalog", "holds a password; name a variable (catalog_env)", SECRET)


def relative(section: Section, environ: Mapping[str, str]) -> Iterator[FieldError]:
    """Paths that every service would look for in a folder of its own: a pipeline that came over REST has no file."""
    catalogs = [("catalog", text_of(section, "catalog"))]
    catalogs += [(key, environ.get(text_of(section, key) or "")) for key in ("catalog_env", "postgres_uri_env")]
    for key, catalog in catalogs:
        kind, _, path = (catalog or "").strip().partition(":")
        if f"{kind}:" == SQLITE and not path.strip().startswith("/"):
            yield FieldError(key, f"{'is' if key == 'catalog' else 'its value is'} {RELATIVE}")
    data_path = text_of(section, "data_path")
    if data_path is not None and "://" not in data_path and not data_path.startswith("/"):
        yield FieldError("data_path", f"is {RELATIVE}")


class EntryChecks:
    """One pipeline's. Raises ``DependencyError`` while the source is unknown."""

    def __init__(self, reconciler: Reconciler, context: PipelineContext) -> None:
        self._reconciler = reconciler
        self._context = context

    def declared(self, entries: Sequence[tuple[str, Entry]]) -> list[Declared]:
        found = self.each_declared(entries)
        for each in found:
            if isinstance(each, InvalidEntry):
                raise each
        return [each for each in found if isinstance(each, Declared)]

    def each_declared(self, entries: Sequence[tuple[str, Entry]]) -> list[Declared | InvalidEntry]:
        source, written = self._source(), [_text(entry.routing_value) for _, entry in entries]
        values = canonical_values(source.routing.type, [text if "\x00" not in text else "" for text in written])
        lakes = Lakes(self._reconciler.config, self._context.environ)
        return [
            self._one(name, entry, value, source, lakes) for (name, entry), value in zip(entries, values, strict=True)
        ]

    def _one(
        self, destination: str, entry: Entry, value: str | None, source: SourceLook, lakes: Lakes
    ) -> Declared | InvalidEntry:
        """``value``: in the spelling of the routing column's type; None where it is no value of it."""
        faults: list[FieldError] = []
        if value is None:
            faults.append(FieldError("routing_value", f"is no {source.routing.type}, as {source.routing.name} is"))
        try:
            declared = declare_entry(destination, entry, _text(entry.routing_value) if value is None else value, lakes)
        except InvalidEntry as unfit:
            return InvalidEntry([*faults, *unfit.faults])
        config = self._reconciler.config
        is_whole = config.topic is not None and column_that_routes(config.routing.field) is None
        if is_whole and _text(entry.routing_value):
            said = "has no meaning for a topic without routing.field; write an empty text"
            faults.append(FieldError("routing_value", said))
        if self._is_source(declared):
            faults.append(FieldError("table", THE_SOURCES))
        return InvalidEntry(faults) if faults else declared

    def _is_source(self, declared: Declared) -> bool:
        known = self._reconciler.source
        if known is None or declared.identity != known.identity:
            return False
        own, seen = self._reconciler.config.source, self._reconciler.seen
        names = {table_names(own.schema_name, own.table)}
        names |= {table_names(seen.table.schema, seen.table.name)} if seen is not None else set()
        return declared.names in names

    def require_retained(self, snapshot: int) -> None:
        config, lake = self._reconciler.config, self._source().lake
        if lake is None or config.topic is not None:
            raise Refused("invalid", BY_OFFSET, "GET the destination: `topic` has its offsets")
        with closing(CatalogReader(lake)) as catalog:
            head = catalog.head().snapshot
            table = catalog.source_table(config.source.schema_name, config.source.table, head)
            born = head if table is None else table.begin_snapshot
            if snapshot > head or snapshot < born or not catalog.exists(snapshot):
                oldest = catalog.oldest_since(born)
                raise Refused(
                    "not_retained", f"the source has no snapshot {snapshot} of its table", f"choose {oldest} to {head}"
                )

    def probe(self) -> Probe:
        return Probe(self._reconciler.config, self._source().table.columns, self._context.environ)

    def _source(self) -> SourceLook:
        if self._reconciler.seen is None:
            raise DependencyError("source", "the source was not polled yet", "try again; /readyz says what is wrong")
        return self._reconciler.seen

    def uniqueness(self, held: Mapping[str, Registered], *, policies: bool = True) -> UniquenessIndex:
        """``policies``: whether destinations of one lake must be kept by one policy."""
        living = (each.declared for each in held.values() if not each.removed)
        source = self._reconciler.source
        upkeep = self._reconciler.config.upkeep if policies else None
        return UniquenessIndex(
            living, self._context.neighbours(BY_ANY), None if source is None else source.claim, upkeep=upkeep
        )


def require_passed(findings: Sequence[PreflightFinding]) -> None:
    faults = [
        FieldError(each.check, f"{each.type}: {each.message}; {each.hint}", "check_failed")
        for each in findings
        if each.ok is False
    ]
    if faults:
        raise InvalidEntry(faults)
