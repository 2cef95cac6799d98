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
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
LOOK_EVERY_S = 0.5

_LIBC = ctypes.CDLL(None)
"""Loaded here, because a child loads nothing between fork and exec."""


def is_supervised(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(SUPERVISED) == "1"


def die_with_parent(environ: Mapping[str, str] = os.environ) -> None:
    """Be killed when the parent process ends, in whatever way. Calling it again does nothing.

    SIGKILL rather than an orderly end: no part of Viaduck depends on one, and a restart right after it
    must find ports and locks free. Linux reports the parent's death; comparing its id covers a parent that died
    before the call, and other systems.
    """
    if _Watch.of == os.getpid():
        return
    _Watch.of = os.getpid()
    parent = int(environ.get(PARENT, os.getppid()))
    signal_at_parents_end(signal.SIGKILL)
    Background("parent watch", lambda loop: _end_as_orphan(loop, parent)).start()


def signal_at_parents_end(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends; only Linux does.

    May be called in a child before it becomes another program.
    """
    if sys.platform == "linux":
        _LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def adopt_orphans() -> None:
    """Have the kernel give this process the children of its descendants that end before them; only Linux does.

    It must collect their exit codes (``reap_orphans``).
    """
    if sys.platform == "linux":
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopts_orphans() -> bool:
    """Whether this process was told to, or is the first of a container, which does so anyway."""
    asked = ctypes.c_int(0)
    if sys.platform == "linux":
        _LIBC.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(asked), 0, 0, 0)
    return bool(asked.value) or os.getpid() == 1


def end_children() -> None:
    """Kill the children of this process that it still owns; on Linux, elsewhere nothing happens.

    A JVM whose start PySpark was waiting for when this process was told to end never exits.
    """
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


def reap_orphans(ours: Container[int | None]) -> None:
    """Collect the exit codes of dead children that other processes started, without ``ours``.

    A process that adopts them, such as the first one of a container, is given the children of processes that died
    before them, such as an applier's JVM and Python workers, and only it can reap them. The next call goes on where a
    dead one of ``ours`` stands first.
    """
    with contextlib.suppress(ChildProcessError):  # there is no child
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and dead.si_pid not in ours:
            os.waitpid(dead.si_pid, 0)


class _Watch:
    of: int | None = None
    """The process that has one: what is forked from it has none."""


def _end_as_orphan(loop: Background, parent: int) -> None:
    while os.getppid() == parent:
        loop.turned()
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
