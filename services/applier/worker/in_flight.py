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
"""Of a core. A process that only waits uses less; one that writes uses more, on a busy machine too."""

SPINS_TIMES = 6
"""A sort may use nothing but CPU for a while. One that does for so many times as long as one may stall only spins."""

Numbered = tuple[int, Target]
Doing = Future[TargetResult | None]


class UnderWay:
    """Used by the one thread that runs a task."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        look_after_s: float = LOOK_AFTER_S,
        moved: Callable[[], int | None] | None = None,
    ) -> None:
        """``clock`` and ``used``: seconds, and seconds of CPU that this process has used, from any beginning.

        ``moved``: the bytes that it has moved, from any beginning; None where nobody can tell.
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
        """When the last one came back; when somebody last did, or bytes moved; the same, or CPU was used."""

    def __len__(self) -> int:
        return len(self.begun)

    @property
    def silent(self) -> int:
        """How many were under way when this process last did next to nothing for a moment, and still are."""
        return len(self._silent)

    def begin(self, doing: Doing, numbered: Numbered) -> None:
        self.begun[doing], self._targets[doing] = self._clock(), numbered

    def wait(self) -> list[tuple[int, TargetResult | None]]:
        """Those that are done, as soon as one is; none after a moment in which nobody was."""
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
        """What the process did in a moment in which nobody came back."""
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
        """Whether nobody has come back for so long, or all have been at it for so long, and nothing is done either.

        Who moves bytes makes progress, however slowly, and to begin anew makes nobody quicker: he has until
        ``deadline_s``, after which his transaction would not be committed any more. Who only uses CPU has less.
        """
        now_s = self._clock()
        took_s = now_s - min(self._came_s, max(self.begun.values()))
        if now_s - self._worked_s >= stall_s / 2:
            return took_s >= stall_s
        if now_s - self._moved_s >= SPINS_TIMES * stall_s:
            return took_s >= min(SPINS_TIMES * stall_s, max(stall_s, deadline_s))
        return took_s >= max(stall_s, deadline_s)

    def left(self) -> list[tuple[int, Target, float]]:
        """Each that is not done, and for how many seconds it has been under way."""
        now_s = self._clock()
        return [(*self._targets[each], now_s - began_s) for each, began_s in self.begun.items()]


def unanswered(target: Target, seconds: float) -> DestinationError:
    """What is known of a destination that was left behind: for how long nothing came back, and not why."""
    on_postgres = target.lake.sqlite_file is None
    holder = "pg_stat_activity and pg_locks show who holds a lock" if on_postgres else "who else holds its file?"
    return DestinationError(
        "destination_unreachable",
        f"{target.item.kind} of {target.destination.key} has been under way for {seconds:.0f} s,"
        " and its lake has not answered",
        f"look at its catalog ({holder}), its store, and the way to both; it is tried again by itself",
    )


def crowded_out(target: Target, others: int, stall_s: float) -> DestinationError:
    """Of a destination that nobody asked, because those before it never came back."""
    return DestinationError(
        "deadline_exceeded",
        f"it was not the turn of {target.destination.key}: {others} others of its job did not answer for {stall_s:g} s",
        "look at the destinations that do not answer; this one is tried again by itself",
    )
