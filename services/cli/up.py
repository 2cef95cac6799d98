"""``viaduck up``: all three services, and a broker if none is configured, as processes that are kept running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from services.cli.client import Control, control_of, url_of
from services.cli.lock import StateLock
from services.cli.once import Tally, Verdict, reasons
from services.cli.ports import require_free
from services.cli.progress import Progress, shown
from services.cli.signals import Signals
from services.cli.status import print_json
from services.cli.supervise import Supervisor
from services.cli.tree import Ports, processes, take_over
from shared import log as logging
from shared.config.catalogs import resolve
from shared.config.loading import load
from shared.config.model import Config
from shared.config.partition import assigned
from shared.errors import ConfigError, DependencyError, ViaduckError
from shared.java import java_home
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.lake.catalog import CatalogReader
from shared.messages import now

log = structlog.get_logger(__name__)

TICK_S = 0.1
ASK_EVERY_S = 0.5
BAD_CONFIGURATION, UNREACHABLE = 2, 3
REFUSED_WITHIN_S = 3.0
"""For ending what has not begun to work: Spark takes longer to start than anybody wants to wait for a typo."""


def main(file: Path, *, once: bool = False, timeout_s: float | None = None, as_json: bool = False) -> int:
    """Run until stopped, or with ``once`` until every destination is at the head. Returns the exit code.

    Raises ``ConfigError``, and ``DependencyError`` for what can't be done without and will not come by itself.
    """
    config = load(file)
    with StateLock(config.state_dir) as lock, Signals() as signals:
        require_free(config.server.host, config.server.port)
        ports = Ports.choose(config)
        lock.tell({"pid": os.getpid(), "url": url_of(config.server.host, ports.control)})
        _require_dependencies(config)
        head = source_head(config) if once else None
        with shown(once) as progress, running(Supervisor(processes(config, ports), progress.output)) as supervisor:
            return Run(config, supervisor, signals, progress, head, timeout_s, as_json).run()


def _require_dependencies(config: Config) -> None:
    java_home()
    if config.kafka.bootstrap_servers is not None:
        Broker(KafkaSettings.from_config(config)).cluster_id()


def source_head(config: Config) -> int:
    """The source's newest snapshot. Raises ``DependencyError`` where the source can't be reached."""
    try:
        catalog = CatalogReader(resolve(config.source.lake, os.environ, config.path.parent))
        try:
            return catalog.head().snapshot
        finally:
            catalog.close()
    except ViaduckError as error:
        raise DependencyError("source", error.message, error.hint) from None


@contextmanager
def running(supervisor: Supervisor) -> Iterator[Supervisor]:
    """Ends the processes however the block ends."""
    try:
        yield supervisor
    finally:
        supervisor.stop()


class Run:
    """One run of the command: look after the processes, listen for signals, and with ``head`` ask how far it is."""

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        signals: Signals,
        progress: Progress,
        head: int | None,
        timeout_s: float | None,
        as_json: bool,
    ) -> None:
        self._config, self._supervisor, self._signals, self._progress = config, supervisor, signals, progress
        self._head, self._as_json = head, as_json
        self._started_at = now()
        self._deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        self._verdict = Verdict()
        self._control = control_of(config, timeout_s=5.0)
        self._ask_at = 0.0
        self._tally: Tally | None = None

    def run(self) -> int:
        code = self._until_done()
        if self._as_json and self._tally is not None:
            print_json(self._tally.destinations)
        return code

    def _until_done(self) -> int:
        steps: tuple[Callable[[], int | None], ...] = (self._told, self._refused, self._reached, self._out_of_time)
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
        return self._signals.exit_code if self._signals.ended_by is not None else None

    def _reload(self) -> None:
        try:
            self._config = take_over(self._supervisor, self._config, load(self._config.path))
        except ConfigError as error:
            log.error("the file is not taken over: it has mistakes", mistakes=list(error.mistakes))

    def _refused(self) -> int | None:
        """A service that finds the file wrong at its first look at the source has printed why; so it is for all."""
        codes = (BAD_CONFIGURATION,) if self._head is None else (BAD_CONFIGURATION, UNREACHABLE)
        code = next((code for code in codes if self._supervisor.refused(code) is not None), None)
        if code is not None:
            self._supervisor.stop(REFUSED_WITHIN_S)
        return code

    def _reached(self) -> int | None:
        if self._head is None or time.monotonic() < self._ask_at:
            return None
        self._ask_at = time.monotonic() + ASK_EVERY_S
        self._tally = ask(self._control, self._config, self._head, self._started_at)
        if self._tally is None:
            return None
        self._progress.show(self._tally)
        code = self._verdict.code(self._tally, time.monotonic())
        if code is not None and not self._as_json:
            self._tell(self._tally, code)
        return code

    def _out_of_time(self) -> int | None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        behind = reasons(self._tally.behind) if self._tally is not None else ["control never answered"]
        self._progress.say("Not done in time:", *behind)
        return 1

    def _tell(self, tally: Tally, code: int) -> None:
        if code == 0:
            self._progress.say(f"{len(tally.wanted)} destinations are exact at snapshot {tally.head} or later")
        else:
            self._progress.say(f"{len(tally.behind)} of {len(tally.wanted)} destinations:", *reasons(tally.behind))


def ask(control: Control, config: Config, head: int, since: datetime) -> Tally | None:
    """How far the destinations of this instance's share are; None while control does not answer."""
    partition = config.instance.partition
    try:
        found = control.pipeline(config.pipeline)
        ours = [status for status in control.destinations(config.pipeline) if assigned(partition, status["id"])]
        declared = frozenset(d.id for d in config.destinations if assigned(partition, d.id))
        return Tally(head, found["source_snapshot"], found["settled"], _is_fresh(found, since), ours, declared)
    except (DependencyError, ConfigError):  # it is starting, or being started again
        return None


def _is_fresh(pipeline: Mapping[str, Any], since: datetime) -> bool:
    looked_at = (pipeline["frontier"] or {}).get("at")
    return looked_at is not None and datetime.fromisoformat(looked_at) >= since


def run(file: Path, *, once: bool, timeout_s: float | None, as_json: bool) -> int:
    """The command itself, with its logging."""
    logging.configure("up")
    return main(file, once=once, timeout_s=timeout_s, as_json=as_json)
