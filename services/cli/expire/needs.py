"""What the destinations need of the source: control knows, else the registry and the cursors do."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from viaduck_client import Unavailable

from services.cli.expire.plan import Hold, Needs
from services.cli.output.retention import name_of, unknown_lines
from services.cli.runtime.client import Control
from services.cli.verify.registered_destinations import Life, everything, lives
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.deployment import Deployment
from shared.config.model import Config, FileDestination
from shared.contracts.errors import DependencyError, ViaduckError
from shared.contracts.messages import SeedMode
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.reader import CatalogReader
from shared.lake.checks.foreign_files import require_no_code
from shared.lake.connection.attach import attach, confine, scanners
from shared.lake.connection.engine import instance
from shared.lake.cursor import SCHEMA, Position, cursor_name, read_position
from shared.lake.failure import LakeAbsent
from shared.lake.upkeep.retained import Retained

ALIAS = "destination"

Ignored = Collection[str]
"""Destinations, each as ``ID`` or ``PIPELINE/ID``, that are not to hold anything."""


def of_control(control: Control, config: Config, span: Retained, ignored: Ignored) -> Needs | None:
    """What control says of the lake; None where no control answers.

    Raises ``DependencyError`` for a control of another deployment, ``ClientError`` where it rejects us.
    """
    try:
        found = control.retention(ignored)
    except Unavailable:
        return None
    mine = next((each for each in found if config.pipeline in each["pipelines"]), None)
    if mine is None:
        raise DependencyError("control", f"it knows no pipeline {config.pipeline}: it is another deployment's")
    if mine["lake"] not in (None, span.lake):
        said = f"it reads the lake {mine['lake']}, and the file names {span.lake}"
        raise DependencyError("control", said, "use the configuration that control runs with")
    unseen = [each for each in found if each["lake"] is None]
    unknown = tuple(line for each in {id(each): each for each in (mine, *unseen)}.values() for line in _unknown(each))
    return Needs(_lowest(mine), unknown, tuple(mine["pipelines"]))


def _unknown(lake: Mapping[str, Any]) -> list[str]:
    if lake["lake"] is not None:
        return unknown_lines(lake)
    named = ", ".join(name_of(each) for each in lake["unknown"])
    why = f": {lake['error']}" if lake["error"] else " yet"
    return [f"the positions of {named} are unknown, because control has not seen the source{why}"]


def _lowest(lake: Mapping[str, Any]) -> Hold | None:
    held = lake["held_by"]
    if held is not None:
        return Hold(held["position"], f"{held['pipeline']}/{held['destination']} ({held['state']}) needs it")
    # a token that is limited to some pipelines is not told who it is
    return None if lake["lowest"] is None else Hold(lake["lowest"], "a destination of another pipeline needs it")


# -- without control --------------------------------------------------------------------------------------------------


def of_registry(
    deployment: Deployment, config: Config, lake: ResolvedLake, span: Retained, ignored: Ignored,
    environ: Mapping[str, str] = os.environ,
) -> Needs:  # fmt: skip
    """The same from the registry, and the cursors in the destinations' own lakes. Raises ``DependencyError``."""
    known, registered = everything(deployment, environ), lives(deployment, environ)
    beside = [each for each in known.configs if _reads(each, lake, environ)]
    holds: list[Hold] = []
    unknown = list(known.unknown)
    for each, destination in _considered(beside, ignored):
        key = f"{each.pipeline}/{destination.id}"
        life = registered.get((each.pipeline, destination.id), Life())
        try:
            needed = need_of(life, _mode(each, destination), _cursor(each, destination, environ), span.oldest)
        except (ViaduckError, LookupError) as error:
            unknown.append(f"the position of {key} is unknown: {error}")
            continue
        if needed is not None:
            holds.append(Hold(needed, f"{key} needs it"))
    return Needs(min(holds, default=None), tuple(unknown), tuple(each.pipeline for each in beside or [config]))


def need_of(life: Life, mode: SeedMode, cursor: Position | None, oldest: int) -> int | None:
    """What a destination needs; None for nothing. Raises ``LookupError`` where that can't be known without control."""
    if life.removing:
        return None
    if cursor is not None and cursor.generation >= life.generation and cursor.position != NOT_SEEDED:
        return cursor.position if cursor.position >= oldest else None
    if life.seed_at is not None:
        return life.seed_at if life.seed_at >= oldest else None
    if mode is SeedMode.REPLAY:
        return oldest
    raise LookupError("its first seed may be running")


def _considered(configs: Iterable[Config], ignored: Ignored) -> Iterator[tuple[Config, FileDestination]]:
    for config in configs:
        for destination in config.destinations:
            if not {destination.id, f"{config.pipeline}/{destination.id}"} & {*ignored}:
                yield config, destination


def _reads(config: Config, lake: ResolvedLake, environ: Mapping[str, str]) -> bool:
    """Whether the pipeline's source is that lake. A source that can't be resolved is taken for it."""
    if config.topic is not None:
        return False
    try:
        return Lakes(config, environ).source().identity == lake.identity
    except ViaduckError:
        return True


def _mode(config: Config, destination: FileDestination) -> SeedMode:
    return destination.seed_mode or config.routing.seed_mode


def _cursor(config: Config, destination: FileDestination, environ: Mapping[str, str]) -> Position | None:
    """The stored cursor; None where there is none. Raises a ``ViaduckError`` where the lake can't be read."""
    lake = Lakes(config, environ).listed(destination)
    with instance(catalogs=scanners(lake)) as con:
        try:
            attach(con, ALIAS, lake, read_only=True)
        except LakeAbsent:
            return None
        confine(con, ALIAS)
        with closing(CatalogReader.attached(lake, con, ALIAS)) as catalog:
            require_no_code(catalog, lake, ((SCHEMA, cursor_name(config.pipeline, destination.id)),))
        return read_position(con, ALIAS, config.pipeline, destination.id)
