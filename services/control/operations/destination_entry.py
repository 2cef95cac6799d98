"""A destination as somebody asks for it over REST, brought to what the registry holds: checked like a file's entry.

No secret may come this way: it would be kept in the registry and travel on the topic. Whatever only a look at other
destinations, at the source or at the lake itself can tell is somebody else's (``clash``, ``desk``, ``probe``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from services.control.model.declared import identity, slice_name
from services.control.model.lifecycle import Declared
from services.control.operations.input_validation import NOT_ALLOWED, FieldError, InvalidEntry, relative, secret
from shared.config.config_errors import UNWRITABLE, Mistakes
from shared.config.declared import Lakes, entry_lake
from shared.config.lake_rules import World, check_lake
from shared.config.limits import limits_of
from shared.config.model import Config
from shared.config.pipeline_files import is_copy
from shared.contracts.messages import Name, SeedMode

CATALOGS = ("catalog", "catalog_env", "postgres_uri_env")

Text = Annotated[str, Field(max_length=4_096)]
Short = Annotated[str, Field(max_length=200)]
Value = Annotated[str | bool | int | float, Field(union_mode="left_to_right")]

EXAMPLE: dict[str, Any] = {
    "routing_value": "quacksworth",
    "catalog_env": "QUACKSWORTH_CATALOG",
    "data_path": "s3://quacksworth-data/",
    "properties": {"s3_region": "eu-central-1"},
}


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

    def text(self) -> str:
        """The routing value as text, as a file would be read."""
        return _text(self.routing_value)


class Environment(dict[str, str]):
    """Variables of this process; one that it has not is an applier's business, and stands for some lake or other."""

    def __missing__(self, key: str) -> str:
        return "dbname=unknown"

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key else default


def declare_entry(id: str, entry: Entry, routing_value: str, config: Config, environ: Mapping[str, str]) -> Declared:
    """The registry's form of an entry. ``routing_value``: in the spelling of the routing column's type.

    Raises ``InvalidEntry``.
    """
    section = _section(entry)
    faults = list(_faults(id, entry, section, routing_value, config, environ))
    if faults:
        raise InvalidEntry(faults)
    lake, folder = entry_lake(section, config), config.path.parent
    return Declared(
        id=id,
        routing_value=routing_value,
        lake=lake,
        identity=identity(lake, folder, environ),
        schema_name=entry.schema_name,
        table=entry.table or config.source.table,
        seed_mode=_seed_mode(entry, config),
        slice_of=slice_name(config.routing),
        name=entry.name,
        written=entry.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"id"}),
    )


def _section(entry: Entry) -> dict[str, Any]:
    """The entry as the rules of a file's entries read it."""
    given = entry.model_dump(by_alias=True, exclude_none=True, include={*CATALOGS, "data_path", "metadata_schema"})
    return {**given, "properties": {name: _text(value) for name, value in entry.properties.items()}}


def _text(value: str | bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seed_mode(entry: Entry, config: Config) -> SeedMode:
    if entry.seed_mode is None:
        return config.routing.seed_mode
    return SeedMode.REPLAY if entry.seed_mode == "replay" else SeedMode(entry.seed_mode)


def _faults(
    id: str,
    entry: Entry,
    section: Mapping[str, Any],
    routing_value: str,
    config: Config,
    environ: Mapping[str, str],
) -> Iterator[FieldError]:
    if entry.id is not None and entry.id != id:
        yield FieldError("id", f"is {entry.id!r}, and the path names {id!r}; leave it out")
    written = {**entry.model_dump(by_alias=True), "routing_value": entry.text()}
    unwritable = [key for key, value in written.items() if isinstance(value, str) and UNWRITABLE.search(value)]
    yield from (FieldError(key, "holds a null character or half of a surrogate pair") for key in unwritable)
    if unwritable or any(map(UNWRITABLE.search, [*section["properties"], *section["properties"].values()])):
        yield from () if unwritable else [FieldError("properties", "hold a null character")]
        return
    secrets = list(secret(section, config.path.parent))
    yield from secrets
    if not secrets:
        yield from _unusable(id, section, routing_value, config, environ)


def _unusable(
    id: str, section: Mapping[str, Any], routing_value: str, config: Config, environ: Mapping[str, str]
) -> Iterator[FieldError]:
    """What it may not name, then what is wrong with it; one for each field."""
    refused = dict(Lakes(config, environ).refusals(id, routing_value, entry_lake(section, config)))
    yield from (FieldError(path, said, NOT_ALLOWED) for path, said in refused.items())
    seen, mistakes = limits_of(config).visible(environ), Mistakes()
    check_lake(section, "", World(Environment(seen), config.path.parent), mistakes)
    yield from (FieldError(path, text) for path, text in mistakes.items() if path not in refused)
    yield from relative(section, seen) if is_copy(config) else ()
