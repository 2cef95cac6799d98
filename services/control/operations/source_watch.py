"""Control's own look at how far back the source reaches, now and then: nothing else knows of all destinations.

It has a thread of its own, so that a source which takes its time keeps nothing else waiting.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import structlog

from services.control.operations.reconciler import Reconciler
from services.control.view.observed_state import CLOCKS_DIFFER
from services.control.view.pipeline_retention import MOST_NAMED, PipelineRetention
from services.control.view.retention import earliest_seed, holds, near_expiry
from services.control.view.status_store import StatusStore
from shared.config.declared import Lakes
from shared.contracts.errors import ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.upkeep.retained import LakeSnapshot
from shared.lake.upkeep.retention import retained, snapshot_at, snapshots_since
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

EVERY_S = 60.0
FIRST_AFTER_S = 5.0
"""What was said of destinations is read from the topics first."""

Clock = Callable[[], datetime]


class SourceWatch(Threaded):
    """One pipeline's. ``start`` once; the other methods may be called from any thread."""

    def __init__(
        self,
        reconciler: Reconciler,
        status_store: StatusStore,
        environ: Mapping[str, str],
        now: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._reconciler = reconciler
        self._status_store = status_store
        self._environ = environ
        self._now = now
        self._told: frozenset[str] = frozenset()
        self.problem: str | None = None
        """Why the last look failed; None where it did not."""
        self._loop = Background(f"source watch {status_store.pipeline}", self._run)

    @property
    def reads_lake(self) -> bool:
        """Whether there is a history to look at: a topic has none that could be expired here."""
        return self._reconciler.config.topic is None

    def _run(self, loop: Background) -> None:
        loop.stopped.wait(FIRST_AFTER_S)
        while not loop.stopped.is_set():
            loop.turned()
            self.look()
            loop.stopped.wait(EVERY_S)

    def look(self) -> None:
        """Ask the source's catalog, and note what that means for the destinations. A failure is noted, too."""
        try:
            found = self._found()
        except (ViaduckError, LookupError) as error:
            self._note_failure(str(error))
            return
        self.problem = None
        self._status_store.note_retention(found)
        self._warn(found)

    def time_of(self, snapshot: int) -> datetime | None:
        """When the source committed it; None where it is not retained, or the source does not answer."""
        return self.times_of([snapshot]).get(snapshot)

    def times_of(self, snapshots: Iterable[int]) -> Mapping[int, datetime]:
        """The same of several; those that are not retained are left out."""
        wanted = set(snapshots)
        if not wanted:
            return {}
        try:
            with self._catalog() as catalog:
                return catalog.times_of(wanted)
        except ViaduckError:
            return {}

    def _found(self) -> PipelineRetention:
        view, looked_at = self._status_store.view(), self._now()
        with self._catalog() as catalog:
            span = retained(catalog)
            begun = snapshot_at(catalog, earliest_seed(view) or looked_at - CLOCKS_DIFFER)
            held = holds(view, span, begun)
            lowest = _committed(catalog, held[0].snapshot) if held else None
        promised_s = self._reconciler.config.source.retained_seconds
        headroom_s = None
        if promised_s is not None and lowest is not None:
            headroom_s = max(0.0, promised_s - (span.catalog_now - lowest.at).total_seconds())
        return PipelineRetention(looked_at, span, lowest, near_expiry(held, span), headroom_s, begun)

    @contextlib.contextmanager
    def _catalog(self) -> Iterator[CatalogReader]:
        lake = Lakes(self._reconciler.config, self._environ).source()
        with contextlib.closing(CatalogReader(lake)) as catalog:
            yield catalog

    def _note_failure(self, said: str) -> None:
        if self.problem is None:
            log.warning("source_history_unreadable", pipeline=self._status_store.pipeline, why=said)
        self.problem = said

    def _warn(self, found: PipelineRetention) -> None:
        """Say who is about to lose the source's history, once for each that comes to it."""
        near = frozenset(found.near)
        if near - self._told:
            log.warning("destinations_near_expiry", pipeline=self._status_store.pipeline, destinations=len(near),
                        first=list(found.near[:MOST_NAMED]), oldest=found.retained.oldest,
                        head=found.retained.head)  # fmt: skip
        self._told = near


def _committed(catalog: CatalogReader, snapshot: int) -> LakeSnapshot | None:
    """A snapshot with its time, or with that of the next one where it alone has expired."""
    found = snapshots_since(catalog, snapshot, 1)
    return LakeSnapshot(snapshot, found[0].at) if found else None
