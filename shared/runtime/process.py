"""What a process of ours that another one started must know: it does not outlive its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Container, Mapping
from pathlib import Path

from shared.runtime.background import Background

SUPERVISED = "VIADUCK_SUPERVISED"
"""Set to 1 in the environment of the processes that ``viaduck up`` starts."""

PARENT = "VIADUCK_PARENT"
"""The process id of ``viaduck up`` for its children, which may come to life only after it has died."""

PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.5


def is_supervised(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(SUPERVISED) == "1"


def die_with_parent(environ: Mapping[str, str] = os.environ) -> None:
    """Be killed when the process that started this one is gone, however it went. Calling it again does nothing.

    SIGKILL rather than an orderly end: nothing of ours depends on one, and whoever starts everything again at once
    must find ports and locks free. Linux tells us of the parent's death; the look at its id covers a parent that died
    before we asked, and other systems.
    """
    if _Watch.started:
        return
    _Watch.started = True
    parent = int(environ.get(PARENT, os.getppid()))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    Background("parent watch", lambda loop: _end_as_orphan(loop, parent)).start()


def end_children() -> None:
    """Kill what this process has started and not handed over to anybody; on Linux, elsewhere nothing happens.

    A JVM whose start PySpark was waiting for when we were told to end waits for us for ever.
    """
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


def reap_orphans(ours: Container[int | None]) -> None:
    """Take the exit codes of dead children that somebody else started, without ``ours``.

    The first process of a container is given the children of those that died before them, such as an applier's JVM and
    Python workers, and nobody else can take them from the table of processes. Linux only.
    """
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            if child not in ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)


class _Watch:
    started = False


def _end_as_orphan(loop: Background, parent: int) -> None:
    while os.getppid() == parent:
        loop.turned()
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
