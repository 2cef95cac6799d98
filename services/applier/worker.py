"""What a Spark Python worker keeps between tasks: lakes, each open in a DuckDB instance of its own, and threads.

It outlives jobs as long as no task raises, leaves input unread or idles for a minute (SPEED §4).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from services.applier.apply import Applier
from services.applier.task import Limits
from services.applier.under_way import Doing
from services.applier.wide import Wide
from services.applier.width import Width
from shared.config.catalogs import ResolvedLake
from shared.lake.engine import memory_of
from shared.lake.pool import LakePool


class Worker:
    """One process's open lakes and threads. Built at the first task."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = LakePool(limits.max_open_lakes, limits.memory_limit)
        self.applier = Applier(self.pool, limits)
        self.told = set[str]()
        """Tables of whose layout the log has been told."""
        self.wide = Wide(memory_of(limits.memory_limit))
        self.width = Width(limits.threads, limits.most_threads)
        self.threads = self._hired()
        self.reported_evictions = 0

    def close(self) -> None:
        """Let go of everything. The lake of somebody who is left behind goes when he does."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()

    def leave(self, behind: Mapping[Doing, float], lakes: Iterable[ResolvedLake]) -> None:
        """Go on without those, with other threads and with their lakes opened anew.

        ``behind``: when each was begun, in monotonic seconds.
        """
        _left_behind.update(behind)
        for lake in lakes:
            self.pool.evict_of(lake, read_only=False)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = self._hired()

    def _hired(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.width.most, thread_name_prefix="apply")


_worker: Worker | None = None
_building = threading.Lock()
_left_behind: dict[Doing, float] = {}
"""Who was left behind in this process, and when each was begun."""


def worker(limits: Limits) -> Worker:
    """This process's worker."""
    global _worker
    with _building:
        stale = _worker is not None and _worker.limits != limits
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
