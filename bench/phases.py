"""Where the wall time of a task goes: the applier's own functions, each with a clock around it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from services.applier.apply.direct import files as direct_files
from services.applier.apply.direct import look as direct_look
from services.applier.apply.direct.commit import DirectApplier
from services.applier.apply.source.feed import Feed
from services.applier.apply.transaction import DestinationApplier
from shared.lake.attached import pool
from shared.lake.catalog.reader import CatalogReader

SOURCE, APPLY = "source", "destinations"
REST = "the rest: threads, pool, answers"
BY_EXTENSION = f"{APPLY}: what DuckLake's extension commits"

PLACES: tuple[tuple[Any, str, str], ...] = (
    (Feed, "_load_feed", f"{SOURCE}: feed"),
    (Feed, "_load_touched", f"{SOURCE}: feed"),
    (Feed, "_load_inserted", f"{SOURCE}: feed"),
    (Feed, "_load_state", f"{SOURCE}: state"),
    (Feed, "read", f"{SOURCE}: head, columns, counting"),
    (direct_look, "look_at", f"{APPLY}: look"),
    (direct_files, "_write_deletes", f"{APPLY}: positions and delete files"),
    (direct_files, "write", f"{APPLY}: data file"),
    (DirectApplier, "_send", f"{APPLY}: batch"),
    (DirectApplier, "_try", f"{APPLY}: connection, keys"),
    (DestinationApplier, "_try", BY_EXTENSION),
    (pool, "attach", "attach"),
    (CatalogReader, "_all", "metadata looks"),
)
"""(where, which function, what its time counts as), less what it spends in others of these."""


class PhaseClock:
    """Seconds by phase. No second counts twice, as long as one thread works while the others wait."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = {phase: 0.0 for *_, phase in PLACES}
        self._clock = clock
        self._lock, self._here = threading.Lock(), threading.local()

    def timed(self, work: Callable[..., Any], phase: str) -> Callable[..., Any]:
        @functools.wraps(work)
        def measured(*given: Any, **named: Any) -> Any:
            outside, self._here.inside = getattr(self._here, "inside", 0.0), 0.0
            began = self._clock()
            try:
                return work(*given, **named)
            finally:
                spent = self._clock() - began
                with self._lock:
                    self.seconds[phase] += spent - self._here.inside
                self._here.inside = outside + spent

        return measured


@contextmanager
def clocked() -> Iterator[PhaseClock]:
    """Whatever this process applies meanwhile is counted."""
    clock = PhaseClock()
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in PLACES]
    for owner, name, phase in PLACES:
        setattr(owner, name, clock.timed(getattr(owner, name), phase))
    try:
        yield clock
    finally:
        for owner, name, work in before:
            setattr(owner, name, work)
