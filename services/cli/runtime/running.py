"""``viaduck up`` as a child process, for the demo and the benchmarks: start it, ask it, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import httpx
from viaduck_client import ClientError

from services.cli.runtime.client import Control
from shared.contracts.errors import DependencyError
from shared.runtime.process import signal_at_parents_end

END_WITHIN_S = 35.0
"""``up`` ends everything within 30 s of SIGTERM (docs/how-to/deploy.md); then it is killed, group and all."""


class UpProcess(Protocol):
    """A process that leads a session, as ``subprocess.Popen`` shows one."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


class RunningViaduck:
    """``with RunningViaduck(config, url, pipeline, log) as viaduck: viaduck.destinations()``.

    It leads a session of its own, so Ctrl-C on the terminal reaches it only through us, and it ends when we do. Start
    it from the main thread: the end of the thread that started it would look like ours.
    """

    def __init__(
        self, config: Path, url: str, pipeline: str, log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self._config = config
        self._log = log
        self._environ = dict(os.environ if environ is None else environ)
        self._pipeline = pipeline
        self._url = url
        self._control = Control(url, timeout_s=5.0)
        self._http = httpx.Client(base_url=url, timeout=5.0)
        self._process: UpProcess | None = None

    def __enter__(self) -> Self:
        self._process = self._start(("up", "-c", str(self._config)), self._environ, self._log)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._control.close()
        self._http.close()
        self.stop()

    @property
    def url(self) -> str:
        """Control's address."""
        return self._url

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def ready(self) -> bool:
        """Whether broker, registry, reader, applier and source all answer."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def wait_until(self, what: str, done: Callable[[], bool], timeout_s: float, every_s: float = 0.2) -> None:
        """Raises ``DependencyError`` if it takes longer, or Viaduck ends."""
        deadline = time.monotonic() + timeout_s
        while not done():
            self._require_alive()
            if time.monotonic() > deadline:
                raise DependencyError("viaduck up", f"{what}: took longer than {timeout_s:.0f} s", f"see {self._log}")
            time.sleep(every_s)

    def destinations(self) -> list[dict[str, Any]]:
        """The status of each destination, as control answers it; empty while control does not answer."""
        try:
            return self._control.destinations(self._pipeline)
        except ClientError:  # starting, or being started again
            return []

    def caught_up(self, head: int) -> bool:
        """Whether every destination is known to be exact at the source's snapshot ``head``, or beyond it."""
        try:
            found = self._control.pipeline(self._pipeline)
        except ClientError:
            return False
        return bool(found["caught_up"]) and (found["source_snapshot"] or 0) >= head

    def metrics(self) -> str:
        """What ``/metrics`` shows: all services' in one."""
        return httpx.get(f"{self._url}/metrics", timeout=10.0).raise_for_status().text

    def stop(self) -> None:
        """End it as Ctrl-C would; whatever is left after that is killed."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_WITHIN_S)
        _kill_session(process)

    def _require_alive(self) -> None:
        if self._process is not None and (code := self._process.poll()) is not None:
            raise DependencyError("viaduck up", f"ended with {code}: {self._last_words()}", f"see {self._log}")

    def _last_words(self, lines: int = 5) -> str:
        return " / ".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _start(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> UpProcess:
        with log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )


def run_to_end(command: Sequence[str]) -> int:
    """The exit code of a command that shares our terminal. If we are interrupted it is asked to end, and waited for."""
    with subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=END_WITHIN_S)
            raise
        finally:
            _kill_session(process)


def _kill_session(process: UpProcess) -> None:
    """Whatever a process that leads a session has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_with_parent() -> None:
    """Runs in the child before it becomes another program: the kernel is to end it when this process is gone."""
    signal_at_parents_end(signal.SIGTERM)
