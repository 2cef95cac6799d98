"""What a Spark Python worker keeps between tasks: one DuckDB instance, the lakes attached to it, and threads.

It outlives jobs as long as no task raises, leaves input unread or idles for a minute (SPEED §4).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait

from services.applier.apply import Applier
from services.applier.task import Limits
from services.applier.under_way import Doing
from services.applier.wide import Wide
from services.applier.width import Width
from shared.lake.engine import connect, memory_of, release
from shared.lake.pool import LakePool


class Worker:
    """One process's instance, lakes and threads. Built at the first task, anew after an instance was invalidated."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        spill = os.path.join(tempfile.gettempdir(), f"viaduck-spill-{os.getpid()}")  # noqa: PTH118 - DuckDB wants text
        self.con = connect(memory_limit=limits.memory_limit, temp_directory=spill)
        self.pool = LakePool(self.con, limits.max_open_lakes)
        self.applier = Applier(self.con, self.pool, limits)
        self.wide = Wide(memory_of(self.con))
        self.width = Width(limits.threads, limits.most_threads)
        self.threads = self._hired()
        self.broken = False
        self.reported_evictions = 0
        self._left: list[Doing] = []

    def close(self) -> None:
        """Let go of everything. DuckDB waits for who is left behind, so nobody waits for DuckDB then."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self._left:
            threading.Thread(target=self._close_in_time, name="close", daemon=True).start()
        else:
            self._close()

    def leave(self, behind: Mapping[Doing, float]) -> None:
        """Go on without those, with other threads. ``behind``: when each was begun, in monotonic seconds."""
        self.broken = True
        self._left += behind
        _left_behind.update(behind)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = self._hired()

    def _hired(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.width.most, thread_name_prefix="apply")

    def _close_in_time(self) -> None:
        wait(self._left)
        self._close()

    def _close(self) -> None:
        self.pool.close()
        release(self.con)


_worker: Worker | None = None
_building = threading.Lock()
_left_behind: dict[Doing, float] = {}
"""Who was left behind in this process, and when each was begun."""


def worker(limits: Limits) -> Worker:
    """This process's worker."""
    global _worker
    with _building:
        stale = _worker is not None and (_worker.broken or _worker.limits != limits)
    if stale:
        forget()
    with _building:
        if _worker is None:
            _worker = Worker(limits)
        return _worker


def forget() -> None:
    """Let go of this process's worker; the next task builds a new one."""
    global _worker
    with _building:
        if _worker is not None:
            _worker.close()
            _worker = None


def has_stuck(deadline_s: float) -> bool:
    """Whether somebody who was left behind is still at it past the deadline, and so can bring nothing about any more.

    Each holds a thread, a connection and a DuckDB instance, which only the end of the process takes from it.
    """
    for gone in [each for each in _left_behind if each.done()]:
        del _left_behind[gone]
    return any(time.monotonic() - began > deadline_s for began in _left_behind.values())
