"""``viaduck check``: is the file right, and does everything that it names answer? No Spark, no broker of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from services.cli.commands.check_topic import findings
from services.cli.output.findings import CheckFinding, show
from services.cli.runtime.lock import refused
from services.cli.runtime.writable import require_writable
from services.cli.verify.registered_destinations import registry_url
from shared.config.declared import Lakes
from shared.config.deployment import Deployment
from shared.config.model import Config, FileDestination
from shared.config.path_overlap import PathClaim, Paths, claim_of
from shared.config.secrets import told
from shared.contracts.errors import ConfigError, DependencyError, SourceError, ViaduckError
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_look import look
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import is_beside
from shared.lake.failure import LakeAbsent
from shared.runtime.full_disk import full_disk

DONE, UNREACHABLE = 0, 3
AT_ONCE = 8
BROKER_WITHIN_S = 5.0
HINT = "check registry.url and that its server runs"


def main(deployment: Deployment) -> int:
    """Check everything and report the findings. Returns the exit code; raises ``ConfigError`` for what has to be
    changed in the files, also if only the source reveals it."""
    several = len(deployment.configs) > 1
    found: list[CheckFinding] = []
    mistakes: list[str] = []
    for config in deployment.configs:
        try:
            found += [_named(config, each) if several else each for each in _pipeline(config)]
        except ConfigError as error:
            mistakes += [f"{config.path}: {line}" if several else line for line in error.mistakes]
    for name, lines in deployment.withheld.items():
        mistakes += [f"{deployment.copies.file(name)}: {line}" for line in lines]
    try:
        found += [_state_dir(deployment.common), _broker(deployment.common), _registry(deployment.common)]
    except ConfigError as error:
        mistakes += error.mistakes
    if mistakes:
        raise ConfigError(mistakes)
    show(found)
    return DONE if all(finding.fine for finding in found) else UNREACHABLE


def _pipeline(config: Config) -> list[CheckFinding]:
    return [*_source(config), *_destinations(config)]


def _named(config: Config, finding: CheckFinding) -> CheckFinding:
    return replace(finding, what=f"{config.pipeline}: {finding.what}")


def _source(config: Config) -> Iterator[CheckFinding]:
    if config.topic is not None:
        yield from findings(config, config.topic)
        return
    name = f"source {config.source.schema_name}.{config.source.table}"
    try:
        seen = look(config)
    except SourceError as error:
        yield CheckFinding(name, False, error.message, error.hint)
        return
    routed = f"routed by {seen.routing.name} {seen.routing.type}"
    keys = ", ".join(key.name for key in seen.keys) or "none, append-only"
    yield CheckFinding(name, True, f"at snapshot {seen.head.snapshot}; {routed}; keys: {keys}")


@dataclass(frozen=True)
class _Looked:
    """A destination, and where its lake's files are if its own catalog alone says so."""

    finding: CheckFinding
    claim: PathClaim | None = None
    told: str | None = None


def _destinations(config: Config) -> list[CheckFinding]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda destination: _destination(config, destination), config.destinations))
    paths = Paths()
    for each in found:
        if each.claim is not None:
            paths.add(each.claim)
    return [_apart(each, paths) for each in found]


def _apart(looked: _Looked, paths: Paths) -> CheckFinding:
    """A catalog's owner may move its lake into another one's folder, which the keys of both may open."""
    if looked.told is None or looked.claim is None:
        return looked.finding
    said = paths.clash(looked.claim)
    if said is None:
        only = f"only its catalog says that its files are at {looked.told}: write that as its data_path"
        return replace(looked.finding, said=f"{looked.finding.said}; {only}")
    return CheckFinding(looked.finding.what, False, f"the data path {looked.told} that its catalog tells {said}",
                   "write data_path for every destination, and ask the owner of this catalog")  # fmt: skip


def _destination(config: Config, destination: FileDestination) -> _Looked:
    name = f"destination {destination.id}"
    try:
        lake = Lakes(config).listed(destination)
        with closing(CatalogReader(lake)) as catalog:
            head, told = catalog.head().snapshot, catalog.data_path()
    except LakeAbsent:
        return _Looked(CheckFinding(name, True, "has no lake yet; its first seed creates one"))
    except LookupError:
        said = "has a catalog and no lake yet; its first seed creates one"
        return _Looked(CheckFinding(name, True, said))
    except ViaduckError as error:
        return _Looked(CheckFinding(name, False, error.message, error.hint))
    where = destination.lake.model_copy(update={"data_path": lake.data_path or told})
    undeclared = lake.data_path is None and not is_beside(told, lake)
    return _Looked(
        CheckFinding(name, True, f"its lake is at snapshot {head}"),
        claim_of(destination.id, lake.identity, where), told if undeclared else None,
    )  # fmt: skip


def _state_dir(config: Config) -> CheckFinding:
    return _answered("state_dir", lambda: _ask_state_dir(config.state_dir))


def _ask_state_dir(folder: Path) -> str:
    try:
        require_writable(folder)
    except OSError as error:
        raise refused(error, folder) from None
    return f"{folder} can be written"


def _broker(config: Config) -> CheckFinding:
    if config.kafka.bootstrap_servers is None:
        return CheckFinding("broker", True, "none is configured; `viaduck up` brings one")
    return _answered("broker", lambda: _ask_broker(config))


def _ask_broker(config: Config) -> str:
    settings = KafkaSettings.reaching(config)
    return f"cluster {Broker(settings, 'viaduck-check').cluster_id(BROKER_WITHIN_S)} answers at {settings.bootstrap}"


def _registry(config: Config) -> CheckFinding:
    url = registry_url(config, os.environ)
    if url is None:
        return CheckFinding("registry", True, f"a SQLite file in {config.state_dir}")
    return _answered("registry", lambda: _ask_registry(url))


def _ask_registry(url: URL) -> str:
    if url.get_backend_name() == "sqlite" and url.database:
        return _ask_sqlite(Path(url.database))
    engine = create_engine(url)
    try:
        with engine.connect():
            return f"{url.render_as_string(hide_password=True)} answers"
    except SQLAlchemyError as error:
        said = told(str(getattr(error, "orig", None) or error)).splitlines()[0]
        raise DependencyError("registry", said, HINT) from None
    finally:
        engine.dispose()


def _ask_sqlite(file: Path) -> str:
    """Control makes the file and its folder; to look must not make them."""
    try:
        require_writable(file.parent)
    except OSError as error:
        why = error.strerror or str(error)
        raise full_disk(error) or DependencyError("registry", f"can't write {file.parent}: {why}", HINT) from None
    return f"a SQLite file in {file.parent}"


def _answered(what: str, ask: Callable[[], str]) -> CheckFinding:
    try:
        return CheckFinding(what, True, ask())
    except ConfigError:
        raise
    except DependencyError as error:
        return CheckFinding(what, False, error.message, error.hint)
