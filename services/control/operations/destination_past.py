"""Which snapshot of a destination shows a moment, or a position of the source, and how it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from services.control.model.lifecycle import Refused, Registered
from services.control.operations.preflight import looking
from services.control.view.destination_status import View, known_through_of
from services.control.view.observed_state import APPLYING
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import ViaduckError
from shared.contracts.ranges import Range
from shared.lake.catalog.reader import CatalogReader, Column, TableInfo
from shared.lake.failure import LakeAbsent
from shared.lake.sql import select_at
from shared.lake.stamp import StampRead, read_stamp

PAGE = 5_000
"""Stamps that are read at once."""

MOST_LATER = 200
"""Commits after a moment that may hold only what the source had before it: a destination lags by seconds."""

COMPACTED = (
    "files of the table were merged or rewritten after this snapshot, and DuckLake does not always show older snapshots"
    " right then (hazards)"
)

Times = Callable[[Iterable[int]], Mapping[int, datetime]]
"""When the source committed snapshots, as far as it retains them and answers."""


@dataclass(frozen=True)
class AppliedSnapshot:
    """A retained snapshot of the destination, with the stamp of the apply that made it."""

    snapshot: int
    at: datetime
    stamp: StampRead


@dataclass(frozen=True)
class ExactSnapshot(AppliedSnapshot):
    """With the position of the source up to which it is known to show the same rows."""

    exact_through: int


@dataclass(frozen=True)
class AsOf:
    """What is asked of it: ``select`` reads the lake after it is attached and used."""

    past: ExactSnapshot
    source_at: datetime | None
    columns: tuple[Column, ...]
    select: str
    note: str | None


class DestinationPast:
    """Of one pipeline's destinations. Raises ``Refused``, and a ``ViaduckError`` for a lake that does not answer."""

    def __init__(
        self, config: Callable[[], Config], view: Callable[[], View], environ: Mapping[str, str], source_times: Times
    ) -> None:
        self._config = config
        self._view = view
        self._environ = environ
        self._source_times = source_times

    def at_position(self, destination: str, position: int) -> AsOf:
        """The snapshot that shows the source at ``position``, or at the last position before it."""
        return self._read(destination, lambda found, exact: newest_through(found, position, exact))

    def at_time(self, destination: str, moment: datetime) -> AsOf:
        """The snapshot that shows what the source had at ``moment``, as far as the destination ever followed it."""
        return self._read(destination, lambda found, _: newest_at(found, moment, self._source_times))

    def _read(
        self, destination: str, choose: Callable[[Iterator[AppliedSnapshot], int | None], ExactSnapshot | None]
    ) -> AsOf:
        view = self._view()
        held, known = view.destinations[destination], known_through_of(view, destination)
        try:
            with looking(), closing(CatalogReader(self._lake(held))) as catalog:
                found = Remembered(applied(catalog, view.pipeline, destination))
                past = choose(found, known)
                if past is None:
                    raise self._not_retained(destination, found.last)
                return self._shown(catalog, held, past)
        except LakeAbsent:
            raise self._not_retained(destination, None) from None

    def _shown(self, catalog: CatalogReader, held: Registered, past: ExactSnapshot) -> AsOf:
        snapshot, declared = past.snapshot, held.declared
        table = catalog.table(declared.schema_name, declared.table, snapshot)
        if table is None:
            raise self._not_retained(held.id, past)
        through = past.stamp.through
        return AsOf(
            past,
            source_at=self._source_times([through]).get(through),
            columns=table.columns,
            select=select_at(table.schema, table.name, table.column_names, snapshot),
            note=COMPACTED if _is_compacted(catalog, table, snapshot) else None,
        )

    def _lake(self, held: Registered) -> ResolvedLake:
        config = self._config()
        try:
            return Lakes(config, self._environ).published(held.message(config.pipeline))
        except ViaduckError as error:
            raise Refused("not_visible", error.message, error.hint) from None

    def _not_retained(self, destination: str, oldest: AppliedSnapshot | None) -> Refused:
        if oldest is None:
            return Refused("not_retained", f"{destination} has no snapshot of Viaduck's", "wait until it is seeded")
        position = oldest.stamp.through
        said = self._source_times([position]).get(position)
        of = f", the source's of {said.isoformat()}" if said is not None else ""
        return Refused(
            "not_retained",
            f"{destination} retains nothing so old: its oldest snapshot is {oldest.snapshot} of"
            f" {oldest.at.isoformat()}, which shows position {position}{of}",
            "choose a later time or position; keep the destination's snapshots for longer",
        )


class Remembered(Iterator[AppliedSnapshot]):
    """Commits, the newest first; ``last`` was given out last."""

    def __init__(self, found: Iterator[AppliedSnapshot]) -> None:
        self._found = found
        self.last: AppliedSnapshot | None = None

    def __next__(self) -> AppliedSnapshot:
        self.last = next(self._found)
        return self.last


def applied(
    catalog: CatalogReader, pipeline: str, destination: str, before: int | None = None
) -> Iterator[AppliedSnapshot]:
    """The retained snapshots, ``before`` one, that moved the destination, the newest first."""
    while found := catalog.history(f'"destination": "{destination}"', PAGE, before):
        for each in found:
            stamp = read_stamp(each.extra_info)
            if stamp is not None and stamp.speaks_of(pipeline, destination) and stamp.kind in APPLYING:
                yield AppliedSnapshot(each.snapshot, each.time, stamp)
        before = found[-1].snapshot


def newest_through(found: Iterable[AppliedSnapshot], position: int, known_through: int | None) -> ExactSnapshot | None:
    """The furthest of those up to ``position``; the newest where several reach it. ``found``: newest first.

    A rewind may have made older positions again, so an older snapshot may reach further.
    """
    best: ExactSnapshot | None = None
    for past in with_ends(found, known_through):
        through = past.stamp.through
        if through <= position and (best is None or through > best.stamp.through):
            best = past
        if best is not None and best.exact_through >= position:
            break
    return best


def newest_at(found: Iterable[AppliedSnapshot], moment: datetime, source_times: Times) -> ExactSnapshot | None:
    """What was committed last by ``moment``, or later with nothing that the source committed after it."""
    later: deque[ExactSnapshot] = deque(maxlen=MOST_LATER)
    there: ExactSnapshot | None = None
    for past in with_ends(found, None):
        if past.at <= moment:
            there = past
            break
        later.append(past)
    times = source_times([each.stamp.through for each in later])
    early = [past for past in later if (at := times.get(past.stamp.through)) is not None and at <= moment]
    candidates = [each for each in (there, *reversed(early)) if each is not None]
    return max(candidates, key=lambda past: past.stamp.through, default=None)


def with_ends(found: Iterable[AppliedSnapshot], known_through: int | None) -> Iterator[ExactSnapshot]:
    """Each with the position up to which nothing of the destination changed: where the next range begins.

    Where the next one followed other columns, they may have changed anywhere in between.
    """
    following: AppliedSnapshot | None = None
    for each in found:
        through = each.stamp.through
        if following is None:
            yield ExactSnapshot(**vars(each), exact_through=max(through, known_through or 0))
        elif following.stamp.generation == each.stamp.generation and not following.stamp.columns:
            yield ExactSnapshot(**vars(each), exact_through=max(through, following.stamp.after))
        else:
            yield ExactSnapshot(**vars(each), exact_through=through)
        following = each


def _is_compacted(catalog: CatalogReader, table: TableInfo, snapshot: int) -> bool:
    head = catalog.head().snapshot
    return any(touch.is_maintenance for touch in catalog.touching(table.table_id, Range(snapshot, head)))
