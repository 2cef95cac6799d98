"""Trees of processes: started and ended, held still, and what they use of memory and CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

MEGABYTE = 1_000_000
GONE = "gone"
LOOK_EVERY_S = 0.5


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it started, at this moment."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def memory_mb(pid: int) -> dict[str, float]:
    """Megabytes by kind of process, by proportional set size: pages that several share are counted once in all."""
    used: dict[str, float] = {}
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            kind, megabytes = _kind(process), process.memory_full_info().pss / MEGABYTE
            used[kind] = used.get(kind, 0.0) + megabytes
    return {kind: round(megabytes, 1) for kind, megabytes in used.items() if kind != GONE}


def cpu_seconds(pid: int) -> dict[str, float]:
    """CPU time that the tree has used so far, by kind of process."""
    spent: dict[str, float] = {}
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            kind, times = _kind(process), process.cpu_times()
            spent[kind] = spent.get(kind, 0.0) + times.user + times.system
    return {kind: seconds for kind, seconds in spent.items() if kind != GONE}


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """What each figure has grown by; one that was not there before began at zero."""
    return {name: round(total - before.get(name, 0.0), 3) for name, total in now.items()}


@contextmanager
def started(
    command: Sequence[str], log: Path, variables: Mapping[str, str], *, end_within_s: float, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a session of its own, told to end with the block, and then ended with all that it started."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(end_within_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pid_of(pid: int, kind: str) -> int:
    """The one process of that kind in the tree."""
    return _only(pid, kind).pid


@contextmanager
def frozen(pid: int, kind: str) -> Iterator[None]:
    """One process of the tree stands still meanwhile, so that what is written then is all there when it looks."""
    process = _only(pid, kind)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Peaks:
    """``with Peaks(pid) as peaks:`` the largest resident set of any one process of each kind, in megabytes.

    A process's resident set holds pages that it shares, too, so this never says less than what it uses.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._ended = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peaks", daemon=True)
        self.mb: dict[str, float] = {}

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        self._look()
        while not self._ended.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        for process in tree(self._pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind, megabytes = _kind(process), round(process.memory_info().rss / MEGABYTE, 1)
                if kind != GONE:
                    self.mb[kind] = max(megabytes, self.mb.get(kind, 0.0))


def _only(pid: int, kind: str) -> psutil.Process:
    (process,) = [process for process in tree(pid) if _kind(process) == kind]
    return process


def _kind(process: psutil.Process) -> str:
    """What a process is: up, broker, reader, control, applier, jvm, worker, other or gone."""
    try:
        command = " ".join(process.cmdline()).split()  # a forked process has it as one text
    except psutil.NoSuchProcess:
        return GONE
    for kind in ("reader", "control", "applier", "up"):
        if "services.cli.main" in command and kind in command:
            return kind
    if any("shared.kafka.embedded" in part for part in command):
        return "broker"
    if "pyspark.worker" in command:
        return "worker"
    return "jvm" if command and command[0].endswith("java") else "other"
