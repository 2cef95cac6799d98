"""What a tree of processes uses: memory by process, and CPU."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

MEGABYTE = 1_000_000
GONE = "gone"


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
    return {kind: megabytes for kind, megabytes in used.items() if kind != GONE}


def cpu_seconds(pid: int) -> float:
    """CPU time that the tree has used so far."""
    spent = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent


@contextmanager
def frozen(pid: int, kind: str) -> Iterator[None]:
    """One process of the tree stands still meanwhile, so that what is written then is all there when it looks."""
    (process,) = [process for process in tree(pid) if _kind(process) == kind]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _kind(process: psutil.Process) -> str:
    """What a process is: up, broker, reader, control, applier, jvm, worker, other or gone."""
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return GONE
    for kind in ("reader", "control", "applier", "up"):
        if "services.cli.main" in command and kind in command:
            return kind
    if any("shared.kafka.embedded" in part for part in command):
        return "broker"
    if any("pyspark.daemon" in part for part in command):
        return "worker"
    return "jvm" if command and command[0].endswith("java") else "other"
