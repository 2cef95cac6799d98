"""Keeps processes running: a process that dies is started again with a growing delay; the others continue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from shared.runtime.process import PARENT, SUPERVISED, adopts_orphans, reap_orphans

log = structlog.get_logger(__name__)

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
HEALTHY_AFTER_S = 60.0
MOST_FAILURES = 4
"""Deaths in a row after which a process is reported as unable to run; it is still restarted."""

END_WITHIN_S = 25.0
"""For all processes together; what is left then is killed."""

STANDARD_ERROR = 2


def restart_delay_s(failures: int) -> float:
    """Seconds to wait after the ``failures``-th death in a row, from 1 on."""
    return float(min(FIRST_DELAY_S * 2 ** min(failures - 1, 16), LONGEST_DELAY_S))


def _nothing() -> None:
    return None


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Spec:
    """A process to keep running. ``environ`` is called at each start. A process that ``needs`` others starts once they
    are ready, and restarts when one of them died."""

    name: str
    command: Sequence[str]
    environ: Callable[[], Mapping[str, str]] = dict
    needs: tuple[str, ...] = ()
    before_start: Callable[[], None] = _nothing
    ready: Callable[[], bool] = _always


class Process(Protocol):
    """A child of this process that leads a session, as ``subprocess.Popen`` shows one."""

    pid: int

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


Launch = Callable[[Spec, Mapping[str, str], int], Process]
"""Starts a process that writes to a file descriptor, with some variables beside those of this process."""


def start_program(spec: Spec, environ: Mapping[str, str], output: int) -> Process:
    """Start a command as a program, in a session of its own."""
    with _hangups_wait():
        return subprocess.Popen(
            spec.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environ},
            start_new_session=True,
        )


class Child:
    """One of the processes, and when it starts again."""

    def __init__(self, spec: Spec, clock: Callable[[], float], launch: Launch) -> None:
        self.spec = spec
        self._launch = launch
        self.starts = 0
        self.exit_code: int | None = None
        self._clock = clock
        self._process: Process | None = None
        self._failures = 0
        self._started_at = 0.0
        self._due_at = 0.0
        self._kill_at: float | None = None
        self._retired = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def how(self) -> str:
        """How its last life ended."""
        return "nothing" if self.exit_code is None else _how(self.exit_code)

    @property
    def is_ready(self) -> bool:
        return self._process is not None and self._kill_at is None and self.spec.ready()

    @property
    def is_due(self) -> bool:
        return self._process is None and not self._retired and self._clock() >= self._due_at

    @property
    def cannot_live(self) -> bool:
        """Whether it dies at each start: as often as a passing fault explains, and once more."""
        return self._failures >= MOST_FAILURES

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of a process that is not wanted any more."""
        return self._retired and self._process is None

    def retire(self) -> None:
        """End the process for good."""
        self._retired = True
        self.terminate()

    def hurry(self) -> None:
        """Start again now, if it is waiting to."""
        self._failures, self._due_at = 0, self._clock()

    def start(self, output: int) -> None:
        """In a session of its own: a Ctrl-C on the terminal is for the supervisor alone, which ends all in order."""
        self.spec.before_start()
        environ = {**self.spec.environ(), SUPERVISED: "1", PARENT: str(os.getpid())}
        self._process = self._launch(self.spec, environ, output)
        self.starts += 1
        self._started_at, self._kill_at = self._clock(), None
        log.info("process_started", process=self.spec.name, pid=self._process.pid)

    def look(self) -> bool:
        """Whether the process died unexpectedly since the last call."""
        if self._process is None:
            return False
        if self._kill_at is not None and self._clock() >= self._kill_at:
            self.kill()
        code = self._process.poll()
        if code is None:
            return False
        asked = self._kill_at is not None
        self._ended(code, asked)
        return not asked

    def terminate(self, within_s: float = END_WITHIN_S) -> None:
        """Ask the process to end; ``look`` kills it when it takes longer."""
        if self._process is not None and self._kill_at is None:
            self._kill_at = self._clock() + within_s
            self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process and what it started (Spark's JVM), at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self, code: int, asked: bool) -> None:
        self.kill()  # what it left behind
        now = self._clock()
        self._process, self.exit_code, self._kill_at = None, code, None
        if asked:
            self._failures, self._due_at = 0, now
            return
        healthy = now - self._started_at >= HEALTHY_AFTER_S
        self._failures = 1 if healthy else self._failures + 1
        delay_s = restart_delay_s(self._failures)
        self._due_at = now + delay_s
        log.error("process_died", process=self.spec.name, how=_how(code), starts_again_in_s=delay_s)


@contextmanager
def _hangups_wait() -> Iterator[None]:
    """A process that starts here begins with SIGHUP blocked: a reload before it has a handler would end it.
    ``shared.runtime.signals`` unblocks it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


class Supervisor:
    """Runs ``specs``, each after those it needs. Nothing here waits: ``tick`` looks and acts, several times a second.

    Must be used on the main thread: Linux ties the children's lives to the thread that started them.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        output: int = STANDARD_ERROR,
        clock: Callable[[], float] = time.monotonic,
        *,
        reaps: bool | None = None,
        launch: Launch = start_program,
    ) -> None:
        """``reaps``: orphans become this process's children; by default where it adopts them."""
        self._clock = clock
        self._launch = launch
        self._reaps = adopts_orphans() if reaps is None else reaps
        self._children: dict[str, Child] = {}
        self._leaving: list[Child] = []
        for spec in specs:
            self.add(spec)
        self._output = output

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def add(self, spec: Spec) -> None:
        """One more process; what was called so before has been dropped."""
        self._children[spec.name] = Child(spec, self._clock, self._launch)

    def drop(self, name: str) -> None:
        """End a process, and forget it."""
        child = self._children.pop(name)
        child.retire()
        self._leaving.append(child)

    def tick(self) -> None:
        if self._reaps:
            reap_orphans({child.pid for child in (*self._children.values(), *self._leaving)})
        for child in self._leaving:
            child.look()
        self._leaving = [child for child in self._leaving if not child.is_over]
        for child in self._children.values():
            if child.look():
                self._restart_dependants(child)
        leaving = {child.spec.name for child in self._leaving}
        for child in self._children.values():
            if child.spec.name in leaving:
                continue  # the previous process of that name still has its port
            if child.is_due and all(self._children[name].is_ready for name in child.spec.needs):
                child.start(self._output)

    def restart(self, *names: str) -> None:
        """Restart processes in order, without counting it as a failure."""
        for name in names:
            self._children[name].terminate()

    def refused(self, code: int) -> Child | None:
        """A process whose very first life ended with this exit code: it would do so again and again."""
        return next((c for c in self._children.values() if c.starts == 1 and c.exit_code == code), None)

    def unable_to_live(self) -> Child | None:
        """A process that has died at every start for some time."""
        return next((child for child in self._children.values() if child.cannot_live), None)

    def stop(self, within_s: float = END_WITHIN_S) -> None:
        """End all: first those that need others, so that they can still say what they did."""
        deadline = time.monotonic() + within_s
        needed = {name for child in self._children.values() for name in child.spec.needs}
        others = [c for c in self._children.values() if c.spec.name not in needed]
        self._stop([*others, *self._leaving], deadline)
        self._stop([self._children[name] for name in needed], deadline)

    def _stop(self, children: Sequence[Child], deadline: float) -> None:
        for child in children:
            child.terminate(within_s=max(0.0, deadline - time.monotonic()))
        while any(child.pid is not None for child in children):
            for child in children:
                child.look()
            time.sleep(0.02)

    def _restart_dependants(self, dead: Child) -> None:
        self.restart(*(c.spec.name for c in self._children.values() if dead.spec.name in c.spec.needs))
