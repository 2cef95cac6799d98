"""The only place that starts long-lived threads: they are supervised, have names, and restart after an error.

A loop that ended by an unforeseen exception looks like a loop that has nothing to do. So an exception is
logged and shown in ``/readyz``, and the loop restarts with a growing delay. A loop without progress fails
``/healthz``, so that the supervisor of the process restarts it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Self

import structlog

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
FORGOTTEN_AFTER_S = 15.0
"""So long a loop must have turned again before its error no longer counts. Services are to be ready within a minute
after an outage: both together are far less."""
TURNS_WITHIN_S = 120.0
"""Longer than anything that a loop of ours waits for in one turn."""

Clock = Callable[[], float]
Work = Callable[["Background"], None]
"""A loop: it calls ``turned`` in each turn, and returns when ``stopped`` is set."""


class Heartbeat:
    """One loop's sign of life, on whatever thread it runs, from ``begin`` to ``end``."""

    def __init__(self, name: str, within_s: float = TURNS_WITHIN_S, clock: Clock = time.monotonic) -> None:
        self.name = name
        self.problem: str | None = None
        """What has ended the loop lately, though it begins again."""
        self._within_s = within_s
        self._clock = clock
        self._turned_s = clock()

    def begin(self) -> None:
        self.turned()
        with _loops.guard:
            _loops.beating.add(self)

    def turned(self) -> None:
        """Called by the loop in each turn."""
        self._turned_s = self._clock()

    def end(self) -> None:
        with _loops.guard:
            _loops.beating.discard(self)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def stands_still(self) -> str | None:
        """For how long the loop has not turned, where that is too long."""
        still_s = self._clock() - self._turned_s
        return None if still_s <= self._within_s else f"has not turned for {still_s:.0f} s"


class Background:
    """A loop on a daemon thread of its own. ``start`` once; ``stop`` from anywhere."""

    def __init__(
        self,
        name: str,
        work: Work,
        *,
        on_error: Callable[[Exception], None] | None = None,
        wakes: threading.Event | None = None,
        turns_within_s: float = TURNS_WITHIN_S,
        clock: Clock = time.monotonic,
    ) -> None:
        """``on_error``: hears what ended the loop, which then does not begin again: its service is to end.

        ``wakes``: what the loop waits for between its turns; set when it is told to stop.
        """
        self.stopped = threading.Event()
        self._wakes = wakes
        self._heartbeat = Heartbeat(name, turns_within_s, clock)
        self._work = work
        self._on_error = on_error
        self._clock = clock
        self._failures = 0
        self._began_s = clock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def problem(self) -> str | None:
        """What ended the loop the last time, until it has turned again for a while."""
        return self._heartbeat.problem

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._heartbeat.begin()
        self._thread.start()

    def turned(self) -> None:
        """The loop is alive."""
        self._heartbeat.turned()
        if self._failures and self._clock() - self._began_s > FORGOTTEN_AFTER_S:
            self._heartbeat.problem, self._failures = None, 0

    def tell_to_stop(self) -> None:
        self.stopped.set()
        if self._wakes is not None:
            self._wakes.set()

    def stop(self, timeout_s: float) -> None:
        """Tell the loop to end, and wait for it; not where it is the loop itself that asks."""
        self.tell_to_stop()
        self._heartbeat.end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self.stopped.is_set():
            self._began_s = self._clock()
            try:
                self._work(self)
                break
            except Exception as error:
                self._failed(error)
                if self._on_error is not None:
                    self._on_error(error)
                    break
            self.stopped.wait(self._pause_s)
        self._heartbeat.end()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._heartbeat.problem = f"ended by {type(error).__name__}; it begins again"
        log.exception("thread_ended", thread=self._heartbeat.name, failures=self._failures)

    @property
    def _pause_s(self) -> float:
        return float(min(FIRST_PAUSE_S * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE_S))


class Threaded:
    """An object with one loop, on a thread of its own."""

    _loop: Background

    def start(self) -> None:
        """Once."""
        self._loop.start()

    def tell_to_stop(self) -> None:
        self._loop.tell_to_stop()

    def stop(self, timeout_s: float) -> None:
        """Tell it to end, and wait for it."""
        self._loop.stop(timeout_s)


def problems() -> dict[str, str | None]:
    """For ``/readyz``: each loop of this process that an error has ended lately, and each that stands still."""
    return {f"thread {beat.name}": why for beat in _beats() if (why := beat.problem or beat.stands_still)}


def standing_still() -> dict[str, str]:
    """For ``/healthz``: each loop of this process that has not turned for too long."""
    return {beat.name: why for beat in _beats() if (why := beat.stands_still) is not None}


def _beats() -> list[Heartbeat]:
    with _loops.guard:
        return sorted(_loops.beating, key=lambda beat: beat.name)


class _Loops:
    """Those of this process, which a process that is forked from it does not have."""

    def __init__(self) -> None:
        self.beating = weakref.WeakSet[Heartbeat]()
        self.guard = threading.Lock()


_loops = _Loops()
os.register_at_fork(after_in_child=_loops.__init__)  # type: ignore[misc]
