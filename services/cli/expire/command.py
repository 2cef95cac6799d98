"""``viaduck source expire``: the plan first, then the deed, in the audit trail by control, or by ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.progress import Progress

from services.cli.expire.lake import WritableSource, kept_newest, kept_younger
from services.cli.expire.needs import of_control, of_registry
from services.cli.expire.plan import Hold, Needs, Plan, first_hold
from services.cli.expire.trail import note
from services.cli.output.sanitize import cell, legible
from services.cli.runtime.client import Control, control_of
from services.cli.runtime.console import console
from services.cli.runtime.interruptible import interruptible
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.deployment import Deployment
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.upkeep.retained import Retained
from shared.lake.upkeep.retention import Freed, freed_from, retained, snapshots_since

DONE, REFUSED = 0, 1


@dataclass(frozen=True)
class ExpiryOptions:
    """The options."""

    older_than_s: float | None = None
    older_than: str = ""
    """The same as it was written."""
    keep: int | None = None
    floors: Sequence[int] = ()
    ignored: Sequence[str] = ()
    dry_run: bool = False
    clean_older_than_s: float | None = None
    limit: int = 100_000


def main(deployment: Deployment, pipeline: str | None, asked: ExpiryOptions) -> int:
    """Returns the exit code. Raises ``ConfigError``, ``DependencyError`` and ``ClientError``, with nothing done."""
    config = _chosen(deployment, pipeline)
    lake = _reachable(config)
    with closing(control_of(deployment.common)) as control, closing(CatalogReader(lake)) as catalog:
        span = retained(catalog)
        _require_floors(asked.floors, span)
        needs = of_control(control, config, span, asked.ignored)
        is_heard = needs is not None
        if needs is None:
            needs = of_registry(deployment, config, lake, span, asked.ignored)
        if needs.unknown:
            return _refuse(needs)
        plan = _plan(catalog, span, needs, asked)
        _print_plan(config, plan, freed_from(catalog, plan.oldest_kept) if plan.snapshots else Freed(0, 0))
        if asked.dry_run or not (plan.snapshots or asked.clean_older_than_s is not None):
            return DONE
        heard: Control | Config = control if is_heard else deployment.common
        return interruptible(lambda _: _execute(lake, plan, asked, lambda: _note(heard, needs, plan, asked)))


def _chosen(deployment: Deployment, pipeline: str | None) -> Config:
    """A pipeline of the source lake. Raises ``ConfigError`` where there are several lakes and none is chosen."""
    if pipeline is not None:
        return deployment.of(pipeline)
    of_lakes = [config for config in reversed(deployment.configs) if config.topic is None]
    if not of_lakes:
        raise ConfigError(["source: no pipeline has a lake for its source; a topic's broker expires its records"])
    lakes = {Lakes(config).source().identity: config for config in of_lakes}
    if len(lakes) > 1:
        names = ", ".join(sorted(config.pipeline for config in lakes.values()))
        raise ConfigError([f"--pipeline: there are several source lakes; choose one of {names}"])
    return next(iter(lakes.values()))


def _reachable(config: Config) -> ResolvedLake:
    """The source's lake, after a look whether it is there. Raises ``DependencyError``."""
    try:
        lake = Lakes(config).source()
        with closing(CatalogReader(lake)) as catalog:
            catalog.head()
        return lake
    except (ViaduckError, LookupError) as error:
        raise DependencyError("source", str(error), getattr(error, "hint", "")) from None


def _require_floors(floors: Sequence[int], span: Retained) -> None:
    beyond = [floor for floor in floors if floor > span.head]
    if beyond:
        raise ConfigError([f"--floor {floor}: the source's head is snapshot {span.head}" for floor in beyond])


def _refuse(needs: Needs) -> int:
    for line in needs.unknown:
        sys.stderr.write(f"{legible(line)}\n")
    sys.stderr.write("nothing was expired; let them run, remove them, or name them with --ignore-destination\n")
    return REFUSED


def _plan(catalog: CatalogReader, span: Retained, needs: Needs, asked: ExpiryOptions) -> Plan:
    wanted = [needs.lowest, *(Hold(floor, "--floor") for floor in asked.floors)]
    if asked.keep is not None:
        wanted.append(kept_newest(catalog, span, asked.keep))
    if asked.older_than_s is not None:
        wanted.append(kept_younger(catalog, span, timedelta(seconds=asked.older_than_s), asked.older_than))
    held = first_hold(span, wanted)
    found = [each for each in snapshots_since(catalog, 0, asked.limit + 1) if each.id < held.snapshot]
    return Plan(span, held, found[: asked.limit], is_limited=len(found) > asked.limit)


def _print_plan(config: Config, plan: Plan, freed: Freed) -> None:
    span, say = plan.span, console().print
    say(cell(f"source of {config.pipeline}: snapshots {span.oldest} to {span.head}, lake {span.lake}"))
    say(cell(f"kept from snapshot {plan.held_by.snapshot} on: {plan.held_by.why}"))
    if not plan.snapshots:
        say("nothing to expire")
        return
    first, last = plan.times
    more = ", and more with the next run (--limit)" if plan.is_limited else ""
    say(cell(f"to expire: {len(plan.snapshots):,} snapshots, {plan.snapshots[0].id} to {plan.through}{more}"))
    say(cell(f"of {_moment(first)} to {_moment(last)}; frees {freed.files:,} files with {freed.bytes:,} bytes"))


def _moment(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")


def _note(trail: Control | Config, needs: Needs, plan: Plan, asked: ExpiryOptions) -> None:
    """Into the audit trail first: what may not be written there is not done. ``trail``: control, or by which file the
    registry is found where that does not answer. Raises ``ClientError`` and ``DependencyError``."""
    if not plan.snapshots:
        return
    if isinstance(trail, Config):
        what = {"snapshots": len(plan.snapshots), "through": plan.through, "ignored": list(asked.ignored)}
        note(trail, needs.pipelines, what)
        return
    for pipeline in needs.pipelines:
        trail.note_expiry(pipeline, len(plan.snapshots), plan.through, asked.ignored)


def _execute(lake: ResolvedLake, plan: Plan, asked: ExpiryOptions, note: Callable[[], None]) -> int:
    """``note`` is called once the lake is open for writing."""
    with closing(WritableSource(lake)) as expiry:
        note()
        if plan.snapshots:
            _expire(expiry, plan)
        if asked.clean_older_than_s is not None:
            cleaned = expiry.clean(timedelta(seconds=asked.clean_older_than_s))
            console().print(f"deleted {cleaned:,} files that were let go before")
    return DONE


def _expire(expiry: WritableSource, plan: Plan) -> None:
    out, done = console(), 0
    try:
        with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
            task = progress.add_task("expiring snapshots", total=len(plan.snapshots))
            for number in expiry.expire(plan.snapshots):
                done += number
                progress.advance(task, number)
    finally:
        out.print(f"expired {done:,} of {len(plan.snapshots):,} snapshots")
