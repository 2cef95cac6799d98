"""The targets that a worker's threads are busy with, and which of them only wait for a catalog or a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait

from services.applier.model.task import Target, TargetResult
from services.applier.worker.bytes_moved import BytesMoved
from shared.contracts.errors import DestinationError

LOOK_AFTER_S = 1.0
"""Far longer than an apply takes. Who is at it for longer, while the process does next to nothing, only waits."""

IDLE_BELOW = 0.05
"""Of a core. A process that only waits uses less; a process that writes uses more, also on a busy machine."""

SPINS_TIMES = 6
"""A sort may use only CPU for a while. A process that does so for this many times the stall limit is spinning."""

Numbered = tuple[int, Target]
Doing = Future[TargetResult | None]


class TargetsInFlight:
    """Used by the one thread that runs a task."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        look_after_s: float = LOOK_AFTER_S,
        moved: Callable[[], int | None] | None = None,
    ) -> None:
        """``clock`` and ``used``: seconds, and seconds of CPU that this process has used, from any beginning.

        ``moved``: the bytes that it has moved, from any starting point; None if unknown.
        """
        self._clock = clock
        self._used = used
        self._look_after_s = look_after_s
        self._moved = BytesMoved() if moved is None else moved
        self._moved_bytes: int | None = None
        self.begun: dict[Doing, float] = {}
        """When, by the clock."""
        self._targets: dict[Doing, Numbered] = {}
        self._silent: set[Doing] = set()
        self._came_s = self._moved_s = self._worked_s = clock()
        """When the last apply returned; when one last did, or bytes moved; the same, or CPU was used."""

    def __len__(self) -> int:
        return len(self.begun)

    @property
    def silent(self) -> int:
        """How many were running when this process last did almost nothing for a moment, and still are."""
        return len(self._silent)

    def begin(self, doing: Doing, numbered: Numbered) -> None:
        self.begun[doing], self._targets[doing] = self._clock(), numbered

    def wait(self) -> list[tuple[int, TargetResult | None]]:
        """The finished applies, as soon as there is one; none after a moment without."""
        used_s = self._used()
        done, _ = wait(self.begun, timeout=self._look_after_s, return_when=FIRST_COMPLETED)
        if done:
            self._came_s = self._moved_s = self._worked_s = self._clock()
        else:
            self._look(uses_cpu=self._used() - used_s >= IDLE_BELOW * self._look_after_s)
        for each in done:
            del self.begun[each]
        self._silent -= done
        return [(self._targets.pop(each)[0], each.result()) for each in done]

    def _look(self, *, uses_cpu: bool) -> None:
        """Record the activity of the process over a moment in which no apply returned."""
        moved, before = self._moved(), self._moved_bytes
        self._moved_bytes = moved
        moves = uses_cpu if moved is None else before is None or moved > before
        if not uses_cpu:
            self._silent = set(self.begun)
        if moves:
            self._moved_s = self._clock()
        if moves or uses_cpu:
            self._worked_s = self._clock()

    def has_stalled(self, stall_s: float, deadline_s: float) -> bool:
        """Whether no apply has returned for so long, or all have run for so long, without activity.

        An apply that moves bytes makes progress, however slowly, and a restart would not make it faster: it has until
        ``deadline_s``, after which its transaction would not be committed. An apply that only uses CPU has less.
        """
        now_s = self._clock()
        took_s = now_s - min(self._came_s, max(self.begun.values()))
        if now_s - self._worked_s >= stall_s / 2:
            return took_s >= stall_s
        if now_s - self._moved_s >= SPINS_TIMES * stall_s:
            return took_s >= min(SPINS_TIMES * stall_s, max(stall_s, deadline_s))
        return took_s >= max(stall_s, deadline_s)

    def left(self) -> list[tuple[int, Target, float]]:
        """Each unfinished apply, and for how many seconds it has been running."""
        now_s = self._clock()
        return [(*self._targets[each], now_s - began_s) for each, began_s in self.begun.items()]


def unanswered(target: Target, seconds: float) -> DestinationError:
    """What is known of a destination that was left behind: for how long nothing came back, and not why."""
    on_postgres = target.lake.sqlite_file is None
    holder = (
        "pg_stat_activity and pg_locks show who holds a lock" if on_postgres else "another process may hold its file"
    )
    return DestinationError(
        "destination_unreachable",
        f"{target.item.kind} of {target.destination.key} has been running for {seconds:.0f} s,"
        " and its lake has not answered",
        f"look at its catalog ({holder}), its store, and the way to both; it is tried again automatically",
    )


def crowded_out(target: Target, others: int, stall_s: float) -> DestinationError:
    """For a destination that was not reached, because the applies before it never returned."""
    return DestinationError(
        "deadline_exceeded",
        f"{target.destination.key} was not reached: {others} others of its job did not answer for {stall_s:g} s",
        "check the destinations that do not answer; this one is tried again automatically",
    )
