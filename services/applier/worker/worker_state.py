"""What a Spark Python worker keeps between tasks: lakes, each open in a DuckDB instance of its own, and threads.

It outlives jobs as long as no task raises, leaves input unread or idles for a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from services.applier.apply.transaction import DestinationApplier
from services.applier.model.task import Limits
from services.applier.worker.adaptive_concurrency import AdaptiveConcurrency
from services.applier.worker.in_flight import Doing
from services.applier.worker.topic_clients import BrokerClients
from services.applier.worker.wide_rows import Wide
from services.applier.worker.worker_memory import WorkerMemory
from shared.config.catalogs import ResolvedLake
from shared.lake.attached.pool import LakePool
from shared.lake.connection.engine import memory_of


class Worker:
    """One process's open lakes and threads. Built at the first task."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = LakePool(limits.max_open_lakes, limits.memory_limit)
        self.applier = DestinationApplier(self.pool, limits)
        self.told = set[str]()
        """Notices that the log has been told."""
        self.wide = Wide(memory_of(limits.memory_limit))
        self.brokers = BrokerClients()
        self.memory = WorkerMemory(limits.memory_limit)
        self.width = AdaptiveConcurrency(limits.threads, limits.most_threads, distance=self.pool.connections.distance)
        self.threads = self._hired()
        self.reported_evictions = 0

    def close(self) -> None:
        """Release everything. The lake of an abandoned apply is released when the apply ends."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()
        self.applier.close()
        self.brokers.close()
        self.memory.close()

    def leave(self, behind: Mapping[Doing, float], lakes: Iterable[ResolvedLake], deadline_s: float) -> None:
        """Continue without those, with other threads and with their lakes opened again.

        ``behind``: when each was begun, in monotonic seconds; ``deadline_s``: how long its transaction may take.
        """
        _left_behind.update((doing, began_s + deadline_s) for doing, began_s in behind.items())
        for lake in lakes:
            self.pool.evict_of(lake, read_only=False)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.threads = self._hired()

    def _hired(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.width.most, thread_name_prefix="apply")


_worker: Worker | None = None
_building = threading.Lock()
_left_behind: dict[Doing, float] = {}
"""Who was left behind in this process, and when each can bring nothing about any more."""

MOST_STUCK = 8
"""Each holds a thread, a connection and a DuckDB instance; a process has its other lakes open, which end with it."""


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


def count_stuck() -> int:
    """How many abandoned applies still run past their deadline, and so can have no effect any more.

    A transaction among them is interrupted. A wait for a socket cannot be: only the end of the process
    releases its resources.
    """
    for gone in [each for each in _left_behind if each.done()]:
        del _left_behind[gone]
    if _left_behind and _worker is not None:
        _worker.applier.attempts.end_overdue()
    return sum(time.monotonic() > due_s for due_s in _left_behind.values())
