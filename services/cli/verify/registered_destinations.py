"""Every destination of every pipeline: from the files, from REST and from discovery.

Control is asked; if it does not answer, its registry is read. If neither is available, the list is incomplete, and
that is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError
from sqlalchemy import Boolean, Connection, Engine, column, create_engine, select, table
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from viaduck_client import ClientError, Rejected

from services.cli.runtime.client import Control, base_url, control_of
from shared.config.config_errors import Mistakes
from shared.config.deployment import Deployment
from shared.config.document import from_json
from shared.config.lake_rules import complete_lake
from shared.config.loading import load_tree
from shared.config.model import Config, FileDestination
from shared.config.secrets import told
from shared.contracts.errors import ConfigError, DependencyError
from shared.contracts.messages import SeedMode

T = TypeVar("T")

Entry = Mapping[str, Any]
"""The keys of a ``destinations`` entry, without the id."""

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}

DESTINATIONS = table(
    "destinations", *map(column, ("pipeline", "id", "spec", "routing_value")), column("removed", Boolean)
)
LIVES = table(
    "destinations", *map(column, ("pipeline", "id", "generation", "seed_at")),
    *(column(name, Boolean) for name in ("removed", "removing")),
)  # fmt: skip
DOCUMENTS = table("documents", *map(column, ("pipeline", "content", "state")))


@dataclass(frozen=True)
class KnownPipelines:
    """``configs``: pipelines, each with all its destinations. ``unknown``: what could not be learned, a line each."""

    configs: tuple[Config, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Life:
    """The present life of a destination, as the registry has it."""

    generation: int = 1
    seed_at: int | None = None
    removing: bool = False


@dataclass
class RegistryContent:
    """What control, or its registry, holds: the entry of each destination by id, and what each pipeline was put as."""

    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)
    documents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def everything(deployment: Deployment, environ: Mapping[str, str] = os.environ) -> KnownPipelines:
    """The deployment's pipelines with all destinations that are known anywhere."""
    troubles: list[str] = []
    for ask in (_of_control, _of_registry):
        try:
            return _joined(deployment, ask(deployment, environ), environ)
        except (ConfigError, DependencyError, ClientError) as error:
            troubles.append(str(error).replace("\n", "; "))
    said = f"only the files' destinations were looked at, there may be others: {'; '.join(troubles)}"
    return KnownPipelines(deployment.configs, (said,))


def _joined(deployment: Deployment, found: RegistryContent, environ: Mapping[str, str]) -> KnownPipelines:
    withheld = (f"{name}: {'; '.join(said)}" for name, said in deployment.withheld.items())
    configs, unknown = [], [*found.refused, *withheld]
    names = [
        *deployment.names,
        *(name for name in found.entries if name not in (*deployment.names, *deployment.withheld)),
    ]
    for name in names:
        try:
            config = deployment.find(name) or _put(deployment, name, found.documents.get(name), environ)
        except ConfigError as error:
            unknown.append(f"{name}: {'; '.join(error.mistakes)}")
            continue
        more, faults = _more(config, found.entries.get(name, {}))
        configs.append(config.model_copy(update={"destinations": (*config.destinations, *more)}))
        unknown += faults
    return KnownPipelines(tuple(configs), tuple(unknown))


def _put(deployment: Deployment, name: str, document: Mapping[str, Any] | None, environ: Mapping[str, str]) -> Config:
    """A pipeline that came over REST. Raises ``ConfigError``."""
    mistakes = Mistakes()
    tree = from_json(document or {}, mistakes)
    file = deployment.copies.file(name)
    loaded = load_tree({**tree, "pipeline": name}, file, environ, mistakes, deployment.kafka)
    if loaded is None:
        raise ConfigError([f"{path}: {said}" for path, said in mistakes.items()])
    return deployment.joined(loaded.config)


def _more(config: Config, entries: Mapping[str, Entry]) -> tuple[list[FileDestination], list[str]]:
    """Registered destinations that the file does not declare, and why some can't be looked at."""
    declared = {destination.id for destination in config.destinations}
    more, faults = [], []
    for name, entry in sorted(entries.items()):
        if name in declared:
            continue
        try:
            more.append(_destination(config, name, entry))
        except (ValidationError, ValueError) as error:
            faults.append(f"{config.pipeline}/{name}: its entry can't be read: {told(str(error)).splitlines()[0]}")
    return more, faults


def _destination(config: Config, destination_id: str, entry: Entry) -> FileDestination:
    given = {name: value for name, value in entry.items() if value is not None and name != "id"}
    properties = {name: _text(value) for name, value in given.pop("properties", {}).items()}
    whole = complete_lake({**given, "properties": properties}, config.defaults.properties, config.path.parent)
    mode = given.get("seed_mode")
    known = {"id": destination_id, "routing_value": _text(given["routing_value"])}
    if mode is not None:
        known["seed_mode"] = SeedMode.REPLAY if mode == "replay" else SeedMode(mode)
    return FileDestination.model_validate({**whole, **known})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- control ----------------------------------------------------------------------------------------------------------


def _of_control(deployment: Deployment, _: Mapping[str, str]) -> RegistryContent:
    """Raises ``DependencyError`` where no control of this deployment answers, ``ClientError`` where it rejects us."""
    control = control_of(deployment.common)
    found = RegistryContent()
    try:
        names = control.pipelines()
        if not set(deployment.names) & set(names):
            where = base_url(deployment.common)
            raise DependencyError("control", f"the one at {where} knows other pipelines: it is another deployment's")
        for name in names:
            config = deployment.find(name)
            if config is None:
                found.documents[name] = control.pipeline(name).get("document") or {}
            declared = {each.id for each in config.destinations} if config else _ids(found.documents[name])
            found.entries[name] = dict(_entries(control, name, declared, found.refused))
    finally:
        control.close()
    return found


def _ids(document: Mapping[str, Any]) -> set[str]:
    """Of a pipeline's own destinations."""
    return {str(each.get("id")) for each in document.get("destinations") or () if isinstance(each, dict)}


def _entries(control: Control, pipeline: str, declared: set[str], refused: list[str]) -> Iterator[tuple[str, Entry]]:
    """Those that are not ``declared``; ``refused`` gets the reason where control does not report one."""
    for status in control.destinations(pipeline):
        if status["id"] in declared:
            continue
        try:
            yield status["id"], control.entry(pipeline, status["id"])
        except Rejected as error:
            refused.append(f"{pipeline}/{status['id']}: {error}")


# -- its registry -----------------------------------------------------------------------------------------------------


def _of_registry(deployment: Deployment, environ: Mapping[str, str]) -> RegistryContent:
    return _asked(deployment, environ, _read)


def lives(deployment: Deployment, environ: Mapping[str, str] = os.environ) -> Mapping[tuple[str, str], Life]:
    """By pipeline and id, removed ones left out. Raises as ``_asked`` does."""
    return _asked(deployment, environ, _read_lives)


def _asked(deployment: Deployment, environ: Mapping[str, str], read: Callable[[Connection], T]) -> T:
    """Raises ``DependencyError`` where it can't be read, ``ConfigError`` for a URL that is none. Nothing is written."""
    engine = _engine(deployment.common, environ)
    try:
        with engine.connect() as con:
            return read(con)
    except SQLAlchemyError as error:
        said = told(str(getattr(error, "orig", None) or error)).splitlines()[0]
        raise DependencyError("registry", said, "check registry.url and that its server runs") from None
    finally:
        engine.dispose()


def _read_lives(con: Connection) -> Mapping[tuple[str, str], Life]:
    rows = con.execute(select(LIVES).where(LIVES.c.removed.is_(False))).mappings()
    return {(row["pipeline"], row["id"]): Life(row["generation"], row["seed_at"], row["removing"]) for row in rows}


def _read(con: Connection) -> RegistryContent:
    found = RegistryContent()
    there = select(DESTINATIONS).where(DESTINATIONS.c.removed.is_(False))
    for row in con.execute(there).mappings():
        spec = json.loads(row["spec"])
        entry = spec.get("written") or _as_read(spec)
        found.entries.setdefault(row["pipeline"], {})[row["id"]] = {"routing_value": row["routing_value"], **entry}
    put = select(DOCUMENTS).where(DOCUMENTS.c.state == "there")
    found.documents = {row["pipeline"]: json.loads(row["content"]) for row in con.execute(put).mappings()}
    for name in found.documents:
        found.entries.setdefault(name, {})
    return found


def _as_read(spec: Mapping[str, Any]) -> Entry:
    """The entry of a destination whose registration has no copy of the entry as written."""
    named = ("catalog", "catalog_env", "postgres_uri_env", "metadata_schema", "data_path", "properties")
    lake = {name: spec["lake"].get(name) for name in named}
    return {**lake, "schema": spec["schema_name"], "table": spec["table"], "seed_mode": spec["seed_mode"]}


def registry_url(config: Config, environ: Mapping[str, str]) -> URL | None:
    """Where the configuration says that the registry is, with our drivers; None for the file in ``state_dir``.

    Raises ``ConfigError`` for what is no URL of a database, without showing what may hold a password.
    """
    given = config.registry
    where = "url" if given.url_env is None else "url_env"
    written = given.url if given.url_env is None else environ.get(given.url_env)
    if written is None and given.url_env is not None:
        raise ConfigError([f"registry.url_env: the environment variable {given.url_env} is not set"])
    if written is None:
        return None
    try:
        url = make_url(written)
        return url.set(drivername=DRIVERS[url.drivername.partition("+")[0]])
    except (ArgumentError, KeyError, ValueError):
        said = "not a database that can be used; write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise ConfigError([f"registry.{where}: {said}"]) from None


def _engine(config: Config, environ: Mapping[str, str]) -> Engine:
    url = registry_url(config, environ)
    if url is None:
        return _sqlite(str(config.state_dir / "registry.sqlite"))
    if url.get_backend_name() == "sqlite":
        return _sqlite(url.database or "")
    return create_engine(url, connect_args={"connect_timeout": 3})


def _sqlite(file: str) -> Engine:
    """Read-only, and never made by looking."""
    if not Path(file).exists():
        raise DependencyError("registry", f"there is no file {file}")
    return create_engine(URL.create("sqlite", database=f"file:{quote(file)}", query={"mode": "ro", "uri": "true"}))
