"""``viaduck up``: all three services, and a broker if none is configured, as processes that are kept running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from services.cli.output.status_table import print_json
from services.cli.runtime.client import control_of, url_of
from services.cli.runtime.lock import StateLock
from services.cli.runtime.ports import require_free
from services.cli.runtime.run_service import SERVICES
from services.cli.up.completion import BAD_CONFIGURATION, UNREACHABLE, Goal, worst
from services.cli.up.fork_server import ForkServer
from services.cli.up.outcome import ProgressSummary
from services.cli.up.process_specs import InForce, Ports, processes, take_copies, take_over
from services.cli.up.progress import ProgressDisplay, shown
from services.cli.up.supervisor import MOST_FAILURES, Launch, Supervisor, start_program
from shared.config.declared import Lakes
from shared.config.deployment import Deployment, load_all
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.contracts.messages import now
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_look import look
from shared.lake.catalog.reader import CatalogReader
from shared.runtime import log as logging
from shared.runtime.java import java_home
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

TICK_S = 0.1
ASK_EVERY_S = 0.5
REFUSED_WITHIN_S = 3.0
"""For an end before any work has begun: Spark takes too long to start to wait for it because of a typo."""


def main(
    places: Sequence[Path],
    *,
    once: bool = False,
    timeout_s: float | None = None,
    as_json: bool = False,
    launch: Launch = start_program,
) -> int:
    """Run until stopped, or with ``once`` until every destination is at the head. Returns the exit code.

    Raises ``ConfigError``, and ``DependencyError`` for what can't be done without and will not come by itself.
    """
    deployment = load_all(places)
    config = deployment.common
    with StateLock(config.state_dir) as lock, Signals() as signals:
        require_free(config.server.host, config.server.port)
        ports = Ports.choose(config)
        lock.tell({"pid": os.getpid(), "url": url_of(config.server.host, ports.control)})
        try:
            _require_dependencies(config)
        except DependencyError:
            if signals.ended_by is None:
                raise
            return signals.exit_code  # the caller has stopped waiting
        goals = goals_of(deployment) if once else []
        in_force = InForce(deployment)
        specs = processes(in_force, ports)
        with (
            shown(once) as progress,
            running(Supervisor(specs, progress.output, launch=launch)) as supervisor,
        ):
            return UpRun(in_force, supervisor, signals, progress, goals, timeout_s, as_json).run()


def _require_dependencies(config: Config) -> None:
    java_home()
    if config.kafka.bootstrap_servers is not None:
        Broker(KafkaSettings.reaching(config)).cluster_id()


def goals_of(deployment: Deployment) -> list[Goal]:
    """What ``--once`` waits for. Where there are several pipelines, one whose source is away fails alone.

    Raises ``DependencyError`` where the only source can't be reached.
    """
    goals = []
    for config in deployment.configs:
        try:
            goals.append(Goal(config, source_head(config)))
        except DependencyError as error:
            if len(deployment.configs) == 1:
                raise
            goals.append(Goal(config, 0, UNREACHABLE, [f"{error} ({error.hint})"]))
    return goals


def source_head(config: Config) -> int:
    """The source's newest position. Raises ``DependencyError`` where the source can't be reached."""
    try:
        if config.topic is not None:
            return look(config).head.snapshot
        catalog = CatalogReader(Lakes(config).source())
        try:
            return catalog.head().snapshot
        finally:
            catalog.close()
    except ViaduckError as error:
        raise DependencyError("source", error.message, error.hint) from None
    except LookupError as error:
        raise DependencyError("source", str(error), "wait until its lake exists") from None


@contextmanager
def running(supervisor: Supervisor) -> Iterator[Supervisor]:
    """Ends the processes however the block ends."""
    try:
        yield supervisor
    finally:
        supervisor.stop()


class UpRun:
    """One run of the command: look after the processes, listen for signals, and ask how far its ``goals`` are."""

    def __init__(
        self,
        in_force: InForce,
        supervisor: Supervisor,
        signals: Signals,
        progress: ProgressDisplay,
        goals: Sequence[Goal],
        timeout_s: float | None,
        as_json: bool,
    ) -> None:
        self._in_force = in_force
        self._supervisor = supervisor
        self._signals = signals
        self._progress = progress
        self._goals = goals
        self._as_json = as_json
        self._started_at = now()
        self._deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        self._control = control_of(in_force.deployment.common, timeout_s=5.0)
        self._ask_at = 0.0

    def run(self) -> int:
        code = self._until_done()
        if self._as_json:
            for tally in self._tallies:
                print_json(tally.destinations)
        return code

    def _until_done(self) -> int:
        steps: tuple[Callable[[], int | None], ...] = (
            self._told, self._refused, self._reached, self._hopeless, self._out_of_time,
        )  # fmt: skip
        while True:
            self._supervisor.tick()
            for step in steps:
                code = step()
                if code is not None:
                    return code
            self._signals.wait(TICK_S)

    def _told(self) -> int | None:
        if self._signals.take_reload():
            self._reload()
        if self._in_force.deployment.copies_changed():
            take_copies(self._supervisor, self._in_force)
        return self._signals.exit_code if self._signals.ended_by is not None else None

    def _reload(self) -> None:
        try:
            take_over(self._supervisor, self._in_force, self._in_force.deployment.again())
        except ConfigError as error:
            log.error("files_refused", mistakes=list(error.mistakes))

    def _refused(self) -> int | None:
        """A service that finds the file wrong at its first look at the source has printed why; so it is for all."""
        codes = (BAD_CONFIGURATION, UNREACHABLE) if self._goals else (BAD_CONFIGURATION,)
        code = next((code for code in codes if self._supervisor.refused(code) is not None), None)
        if code is not None:
            self._supervisor.stop(REFUSED_WITHIN_S)
        return code

    def _reached(self) -> int | None:
        if not self._goals or time.monotonic() < self._ask_at:
            return None
        self._ask_at = time.monotonic() + ASK_EVERY_S
        for goal in self._goals:
            goal.look(self._control, self._started_at, time.monotonic())
        if self._tallies:
            self._progress.show(self._tallies)
        code = worst([goal.code for goal in self._goals])
        if code is not None and not self._as_json:
            for goal in self._goals:
                self._progress.say(*goal.said(named=len(self._goals) > 1))
        return code

    def _hopeless(self) -> int | None:
        """With ``--once``, a service that dies at every start would make the command wait without end."""
        dead = self._supervisor.unable_to_live() if self._goals else None
        if dead is None:
            return None
        behind = [line for goal in self._goals for line in goal.missing(named=len(self._goals) > 1)]
        said = f"The {dead.spec.name} has died {MOST_FAILURES} times in a row, the last time with {dead.how}."
        self._progress.say(f"{said} Its log says why.", *behind)
        return 1

    def _out_of_time(self) -> int | None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        behind = [line for goal in self._goals for line in goal.missing(named=len(self._goals) > 1)]
        self._progress.say("Not done in time:", *behind)
        return 1

    @property
    def _tallies(self) -> list[ProgressSummary]:
        return [goal.tally for goal in self._goals if goal.tally is not None]


def run(places: Sequence[Path], *, once: bool, timeout_s: float | None, as_json: bool) -> int:
    """The command itself, with its logging."""
    with ForkServer(tuple(SERVICES.values())) as server:
        logging.configure("up")
        return main(places, once=once, timeout_s=timeout_s, as_json=as_json, launch=server.launch)
