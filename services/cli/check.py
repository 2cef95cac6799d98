"""``viaduck check``: is the file right, and does everything that it names answer? No Spark, no broker of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from services.cli.legible import cell
from shared.config.declared import Lakes
from shared.config.deployment import Deployment
from shared.config.model import Config, FileDestination
from shared.config.secrets import told
from shared.errors import ConfigError, DependencyError, SourceError, ViaduckError
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.lake.catalog import CatalogReader
from shared.lake.failure import LakeAbsent
from shared.lake.source import look

DONE, UNREACHABLE = 0, 3
AT_ONCE = 8
BROKER_WITHIN_S = 5.0


@dataclass(frozen=True)
class Finding:
    """One thing that the file names, and what is wrong with it, if anything."""

    what: str
    fine: bool
    said: str
    hint: str = ""


def main(deployment: Deployment) -> int:
    """Check everything and say what was found. Returns the exit code; raises ``ConfigError`` for what the files must
    say otherwise, be it that only a source shows it."""
    several = len(deployment.configs) > 1
    found: list[Finding] = []
    mistakes: list[str] = []
    for config in deployment.configs:
        try:
            found += [_named(config, each) if several else each for each in _pipeline(config)]
        except ConfigError as error:
            mistakes += [f"{config.path}: {line}" if several else line for line in error.mistakes]
    for name, lines in deployment.withheld.items():
        mistakes += [f"{deployment.copies.file(name)}: {line}" for line in lines]
    if mistakes:
        raise ConfigError(mistakes)
    found += [_broker(deployment.common), _registry(deployment.common)]
    _show(found)
    return DONE if all(finding.fine for finding in found) else UNREACHABLE


def _pipeline(config: Config) -> list[Finding]:
    return [*_source(config), *_destinations(config)]


def _named(config: Config, finding: Finding) -> Finding:
    return replace(finding, what=f"{config.pipeline}: {finding.what}")


def _source(config: Config) -> Iterator[Finding]:
    name = f"source {config.source.schema_name}.{config.source.table}"
    try:
        seen = look(config)
    except SourceError as error:
        yield Finding(name, False, error.message, error.hint)
        return
    routed = f"routed by {seen.routing.name} {seen.routing.type}"
    keys = ", ".join(key.name for key in seen.keys) or "none, append-only"
    yield Finding(name, True, f"at snapshot {seen.head.snapshot}; {routed}; keys: {keys}")


def _destinations(config: Config) -> list[Finding]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda destination: _destination(config, destination), config.destinations))


def _destination(config: Config, destination: FileDestination) -> Finding:
    name = f"destination {destination.id}"
    try:
        lake = Lakes(config).listed(destination)
        with closing(CatalogReader(lake)) as catalog:
            head = catalog.head().snapshot
    except LakeAbsent:
        return Finding(name, True, "has no lake yet; its first seed makes one")
    except LookupError:
        return Finding(name, True, "has a catalog and no lake yet; its first seed makes one")
    except ViaduckError as error:
        return Finding(name, False, error.message, error.hint)
    return Finding(name, True, f"its lake is at snapshot {head}")


def _broker(config: Config) -> Finding:
    if config.kafka.bootstrap_servers is None:
        return Finding("broker", True, "none is configured; `viaduck up` brings one")
    return _answered("broker", lambda: _ask_broker(config))


def _ask_broker(config: Config) -> str:
    settings = KafkaSettings.reaching(config)
    return f"cluster {Broker(settings, 'viaduck-check').cluster_id(BROKER_WITHIN_S)} answers at {settings.bootstrap}"


def _registry(config: Config) -> Finding:
    url = config.registry.url or (os.environ[config.registry.url_env] if config.registry.url_env else None)
    if url is None:
        return Finding("registry", True, f"a SQLite file in {config.state_dir}")
    return _answered("registry", lambda: _ask_registry(url))


def _ask_registry(url: str) -> str:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        folder = Path(parsed.database).parent
        if not folder.exists():
            return f"a SQLite file that control makes, in {folder}"
    engine = create_engine(parsed)
    try:
        with engine.connect():
            return f"{parsed.render_as_string(hide_password=True)} answers"
    except SQLAlchemyError as error:
        said = told(str(getattr(error, "orig", None) or error)).splitlines()[0]
        raise DependencyError("registry", said, "check registry.url and that its server runs") from None
    finally:
        engine.dispose()


def _answered(what: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, ask())
    except ConfigError:
        raise
    except DependencyError as error:
        return Finding(what, False, error.message, error.hint)


def _show(found: list[Finding]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in found:
        table.add_row("ok" if finding.fine else "[bold red]no[/]", cell(finding.what), cell(finding.said))
        if not finding.fine and finding.hint:
            table.add_row("", "", cell(f"→ {finding.hint}"))
    Console(soft_wrap=True).print(table)
