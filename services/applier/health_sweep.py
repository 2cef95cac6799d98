"""Asks the catalogs now and then how their lakes fare, and publishes what they say. It gives way to changes.

One thread for all pipelines of an applier looks at one lake after the other. What does not answer holds it up for as
long as a connection may take, once for each database and sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import structlog

from services.applier.apply.maintenance.compaction import SMALL_BYTES
from services.applier.model.health_plan import Database, LakeKey, LakeWanted, TableWanted, by_lake, in_order
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.projection import project
from shared.contracts.reports import LakeFigures, LakeHealth
from shared.kafka.sender import Sender
from shared.lake.upkeep.health import HealthReader, TableHealth
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

FIRST_AFTER_S = 10.0
"""What has just started has changes to apply first."""

SLICE_S = 1.0
GIVES_WAY_FOR_S = 0.1
YIELDING_SHARE = 0.25
"""Of the time between two sweeps: so long one waits for changes at most, lest it never ends beside a busy source."""

TURNS_WITHIN_S = 3_600.0
"""A file system that hangs holds a look up for good, and is no reason to end an applier whose lanes turn."""

SILENT = "destination_unreachable"


class HealthTarget(Protocol):
    """A pipeline of this applier."""

    @property
    def is_busy(self) -> bool:
        """Whether it has items in hand."""

    def tables(self) -> Iterator[tuple[TableWanted, ResolvedLake | ViaduckError]]:
        """The tables whose health is this applier's to tell, each with its lake or with why that can't be opened."""


class LakeHealthReader(Protocol):
    def look(self, lake: ResolvedLake, tables: list[tuple[str, str]]) -> list[TableHealth]: ...


class HealthSweep(Threaded):
    """``start`` once; ``stop`` waits for the look in hand."""

    def __init__(
        self,
        every_s: Callable[[], float],
        consumers: Callable[[], Collection[HealthTarget]],
        sender: Sender,
        topic: str,
        applier: str,
        reader: Callable[[], AbstractContextManager[LakeHealthReader]] = lambda: HealthReader(SMALL_BYTES),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``every_s``: seconds between two sweeps as configured now, 0 for none."""
        self._every_s = every_s
        self._consumers = consumers
        self._sender = sender
        self._topic = topic
        self._applier = applier
        self._reader = reader
        self._clock = clock
        self._asked_at: dict[LakeKey, float] = {}
        self._loop = Background("health sweep", self._run, turns_within_s=TURNS_WITHIN_S)

    def _run(self, loop: Background) -> None:
        due_s = self._clock() + min(FIRST_AFTER_S, self._every_s())
        while not loop.stopped.wait(SLICE_S):
            loop.turned()
            every_s = self._every_s()
            if every_s and self._clock() >= due_s:
                begun_s = self._clock()
                self.sweep(every_s)
                due_s = begun_s + every_s

    def sweep(self, every_s: float) -> None:
        """One look at every lake; what is not reached within ``every_s`` comes first in the next one."""
        begun_s = self._clock()
        lakes = self._lakes()
        left = len(lakes)
        failed = 0
        with self._reader() as reader:
            for answered in self._looks(reader, lakes, begun_s + every_s, every_s * YIELDING_SHARE):
                left -= 1
                failed += not answered
        seconds = round(self._clock() - begun_s, 3)
        log.info("lakes_looked_at", lakes=len(lakes), failed=failed, left=left, seconds=seconds)

    def _lakes(self) -> list[LakeWanted]:
        found: list[tuple[TableWanted, ResolvedLake]] = []
        for consumer in self._consumers():
            for table, lake in consumer.tables():
                if isinstance(lake, ViaduckError):
                    self._tell_error([table], lake)
                else:
                    found.append((table, lake))
        lakes = in_order(by_lake(found), self._asked_at)
        there = {each.key for each in lakes}
        self._asked_at = {key: at for key, at in self._asked_at.items() if key in there}
        return lakes

    def _looks(
        self, reader: LakeHealthReader, lakes: Iterable[LakeWanted], until_s: float, patience_s: float
    ) -> Iterator[bool]:
        """Whether each answered, one after the other."""
        silent: dict[Database, ViaduckError] = {}
        for each in lakes:
            patience_s -= self._give_way(patience_s)
            if self._loop.stopped.is_set() or self._clock() >= until_s:
                return
            self._loop.turned()
            error = silent.get(each.database) or self._look(reader, each)
            if error is not None:
                self._tell_error(each.tables, error)
            if error is not None and error.type == SILENT:
                silent[each.database] = error
            self._asked_at[each.key] = self._clock()
            yield error is None

    def _give_way(self, at_most_s: float) -> float:
        """Wait while there are changes in hand. Returns how long."""
        begun_s = self._clock()
        while any(consumer.is_busy for consumer in self._consumers()):
            waited_s = self._clock() - begun_s
            if waited_s >= at_most_s or self._loop.stopped.wait(GIVES_WAY_FOR_S):
                break
        return self._clock() - begun_s

    def _look(self, reader: LakeHealthReader, wanted: LakeWanted) -> ViaduckError | None:
        try:
            found = reader.look(wanted.lake, [(each.schema, each.table) for each in wanted.tables])
            figures = [figures_of(each, wanted.lake) for each in found]
        except ViaduckError as error:
            return error
        for table, each in zip(wanted.tables, figures, strict=True):
            self._send(self._message(table).model_copy(update={"figures": each}))
        return None

    def _tell_error(self, tables: Iterable[TableWanted], error: ViaduckError) -> None:
        for table in tables:
            self._send(self._message(table).model_copy(update={"error": error.problem()}))

    def _message(self, table: TableWanted) -> LakeHealth:
        return LakeHealth(
            pipeline=table.pipeline,
            destination=table.destination,
            generation=table.generation,
            applier=self._applier,
        )

    def _send(self, health: LakeHealth) -> None:
        self._sender.send(self._topic, health.key, health.to_bytes())


def figures_of(found: TableHealth, lake: ResolvedLake) -> LakeFigures:
    """As a message carries them. Raises ``lake_incompatible`` for more than anything can be."""
    try:
        return project(LakeFigures, found, oldest_age_seconds=found.oldest_age_s)
    except ValueError:
        said = f"the catalog of {lake} holds figures that DuckLake never writes"
        raise DestinationError("lake_incompatible", said, "restore the catalog's own tables from a backup") from None
