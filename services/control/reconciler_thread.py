"""Control's own thread: takes the file over, meets what answers ask for, and repeats what is published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from services.control.operations.reconciler import Reconciler
from services.control.view.status_store import StatusStore
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, SourceError
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

TICK_S = 1.0
RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 30.0
NOT_YET = "not looked at yet"

FIXED = ("pipeline", "source", "routing", "kafka", "registry", "state_dir")
"""Sections that a running pipeline can't change: reader and appliers hold them too."""


class ReconcilerThread(Threaded):
    """Runs until ``stop``, or until it can't go on: then ``on_failure`` hears why, on the worker's thread.

    That is ``ConfigError`` for a file that the source refutes before it ever was in force, else a defect. Where it is
    not ``alone`` there are other pipelines beside it: then it never gives up, and tries again.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        status_store: StatusStore,
        repeat_every_s: float,
        on_failure: Callable[[Exception], None],
        load: Callable[[Path], Config] = load,
        chores: Sequence[Callable[[], None]] = (),
        *,
        alone: bool = True,
    ) -> None:
        """``chores`` are done at each turn, and wait while the registry can't be used."""
        self._reconciler = reconciler
        self._status_store = status_store
        self._chores = (reconciler.refresh, reconciler.react, *chores)
        self._repeat_every_s = repeat_every_s
        self._on_failure = on_failure
        self._load = load
        self.alone = alone
        self._reload = threading.Event()
        self._repeat = threading.Event()
        self._loop = Background(f"worker {status_store.pipeline}", self._run, wakes=status_store.asked)
        self._wanted: Config | None = reconciler.config
        """The file that is still to be taken over; None when there is none."""
        self._taken_over = self._answers_wait = False
        self._try_at = 0.0
        self._wait_s = RETRY_FIRST_S
        self.source_problem: str | None = NOT_YET

    def reload(self) -> None:
        """Read the file again, soon; may be called from a signal handler."""
        self._reload.set()
        self._status_store.asked.set()

    def repeat(self) -> None:
        """Publish everything again soon: the broker may have lost it."""
        self._repeat.set()
        self._status_store.asked.set()

    def _run(self, loop: Background) -> None:
        structlog.contextvars.bind_contextvars(pipeline=self._status_store.pipeline)
        try:
            self._turn_until_stopped(loop)
        except Exception as error:
            if not self.alone:
                raise
            if not isinstance(error, ConfigError):
                log.exception("reconciler_failed")
            self._on_failure(error)

    def _turn_until_stopped(self, loop: Background) -> None:
        self._reconciler.announce_all()
        repeat_at = time.monotonic() + self._repeat_every_s
        while not loop.stopped.is_set():
            loop.turned()
            self._turn()
            if self._repeat.is_set() or time.monotonic() >= repeat_at:
                self._repeat.clear()
                self._reconciler.announce_all()
                repeat_at = time.monotonic() + self._repeat_every_s
            self._status_store.asked.wait(TICK_S)

    def _turn(self) -> None:
        if self._reload.is_set():
            self._reload.clear()
            self._read_again()
        if self._wanted is not None and time.monotonic() >= self._try_at:
            self._take_over(self._wanted)
        self._react()

    def _react(self) -> None:
        try:
            for chore in self._chores:
                chore()
        except DependencyError as error:
            if not self._answers_wait:
                log.warning("progress_delayed", error=str(error), hint=error.hint)
            self._answers_wait = True
        else:
            self._answers_wait = False

    def _read_again(self) -> None:
        before = self._reconciler.config
        try:
            config = self._load(before.path)
        except ConfigError as error:
            log.error("file_refused", mistakes=list(error.mistakes))
            return
        fixed = [name for name in FIXED if getattr(config, name) != getattr(before, name)]
        if fixed:
            log.error("file_needs_restart", changed=fixed)
            return
        self._wanted, self._try_at, self._wait_s = config, 0.0, RETRY_FIRST_S
        self._status_store.file_in_force, self._status_store.refused = False, ()

    def _take_over(self, config: Config) -> None:
        try:
            self._reconciler.apply(config)
        except ConfigError as error:
            self._refuse(error)
        except (SourceError, DependencyError) as error:
            self._wait(error)
        else:
            log.info("file_loaded", destinations=len(config.destinations))
            self._wanted, self._taken_over, self.source_problem, self._status_store.refused = None, True, None, ()

    def _refuse(self, error: ConfigError) -> None:
        """A file that was never accepted ends control, or is tried again; an accepted one stays until the next."""
        if self._taken_over:
            log.error("file_refused", mistakes=list(error.mistakes))
            self._wanted, self._status_store.file_in_force = None, True
            return
        if self.alone:
            raise error
        if self._status_store.refused != error.mistakes:
            log.error("file_contradicts_source", mistakes=list(error.mistakes))
        self.source_problem, self._status_store.refused = None, error.mistakes
        self._later()

    def _wait(self, error: SourceError | DependencyError) -> None:
        if isinstance(error, SourceError):
            self.source_problem = error.message
        log.warning("file_destinations_delayed", error=str(error), hint=error.hint, retry_in_s=self._wait_s)
        self._later()

    def _later(self) -> None:
        self._try_at = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, RETRY_LONGEST_S)
