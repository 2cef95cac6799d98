"""The source as the reader sees it: metadata by plain queries, counts by one pass over one column. Never writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from services.reader.planner.counted_changes import CountedStep, nothing, segments
from services.reader.planner.frontier import TopicEnds
from services.reader.planner.reshapes import UNCHANGED, Reshapes
from services.reader.planner.scheduling import SourceState
from services.reader.source.row_counter import Counter, Images
from services.reader.source.source_reader import Cut, Expired
from shared.config.catalogs import ResolvedLake
from shared.config.model import Config
from shared.contracts.digest import VALUE_DIGITS
from shared.contracts.errors import SourceError, ViaduckError
from shared.contracts.positions import SpelledPosition
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.contracts.reports import LONGEST_OFFERED, MOST_OFFERED, Offered
from shared.lake.catalog.reader import CatalogReader, Column, Head, SourceNews, TableInfo, TableView
from shared.lake.catalog.runs import insertion_runs
from shared.lake.catalog.touches import Touch
from shared.lake.checks.source import AS_SOURCE
from shared.lake.columns.followed import Break, breaks
from shared.lake.columns.history import reshapings
from shared.lake.columns.identity import Identifying, identified, replaced
from shared.lake.routing_value import not_routed

T = TypeVar("T")

MOST_ROWS_TO_SIZE = 50_000_000
"""Larger tables are not counted for the sake of a seed's bound."""


COUNT_TRIES = range(3)

MOST_DATED = 500
"""Changes of columns of which is asked when they were committed: a destination that lags behind more is rare, and the
age of what it lacks then unknown."""


class LakeSource:
    """One table of one lake. Raises ``SourceError`` where it can't be read now, or is not what it was."""

    def __init__(self, config: Config, lake: ResolvedLake) -> None:
        self._schema = config.source.schema_name
        self._name = config.source.table
        self._field = config.routing.field
        self._identifying = Identifying(config.routing.field, config.routing.key_columns)
        self._append_only = config.routing.append_only
        self._segment_rows = config.reader.segment_rows
        self._catalog = CatalogReader(lake)
        self._counter = Counter(lake, self._catalog, self._called)
        self._table: TableInfo | None = None
        self._seen: tuple[Head, TableView] | None = None
        self._histories = 0
        self._reshapes: tuple[int, Reshapes] = (0, UNCHANGED)
        """And of which history they are."""

    def close(self) -> None:
        self._counter.close()
        self._catalog.close()

    def head(self) -> Head:
        """The one query of an idle poll."""
        with _as_source():
            return self._catalog.head()

    def observe(self, head: Head) -> SourceState:
        """What else metadata tells at the head. Raises ``source_gone`` where there is no such table."""
        with _as_source():
            look = self._looked(head)
            self._table = table = self._require_routed(look.table)
        oldest, first = look.oldest, look.first
        seen = head if self._seen is None else self._seen[0]
        if is_undone(seen, head, oldest, look.times.get(seen.snapshot)):
            self._histories += 1
        self._seen = head, look
        broken = breaks(table.versions, self._identifying, head.snapshot)
        notice = look.layout.notice(table.schema, table.name)
        told = *self._renamed(table), self._replaced(table, broken, oldest), notice
        return SourceState(
            head=head.snapshot,
            oldest=oldest,
            born=table.begin_snapshot,
            first=head.snapshot if first is None else first,
            lake=table.lake_uuid,
            table=table.table_uuid,
            at=head.time,
            history=self._histories,
            breaks=broken,
            reshapes=self._dated(reshapings(table.versions, head.snapshot)),
            notice="; ".join(filter(None, told)) or None,
        )

    def _looked(self, head: Head) -> TableView:
        """A look at ``head``. Where it was looked at before only what is retained is asked: an expiry makes no
        snapshot, and each change of anything else that a look finds does."""
        if self._seen is None:
            return self._whole_look(head, head.snapshot)
        seen, look = self._seen
        if (seen.snapshot, seen.time) != (head.snapshot, head.time):
            return self._whole_look(head, seen.snapshot)
        oldest, first = self._catalog.retained(look.table.schema, look.table.name, head.snapshot)
        return replace(look, oldest=oldest, first=first, times={head.snapshot: head.time})

    def _whole_look(self, head: Head, seen: int) -> TableView:
        look = self._catalog.source_look(self._schema, self._name, head.snapshot, [seen])
        if look is None:
            raise self._gone()
        return look

    def _renamed(self, table: TableInfo) -> Iterator[str]:
        """What is to be told while the file names the table, or a column that tells rows apart, otherwise."""
        if (table.schema.lower(), table.name.lower()) != (self._schema.lower(), self._name.lower()):
            old, new = f"table {self._schema}.{self._name}", f"{table.schema}.{table.name}"
            yield _followed(old, new, "table", "source.table has the new one")
        for name in self._identifying.names:
            column = table.identified(name)
            if column is not None and column.name.lower() != name.lower():
                yield _followed(f"column {name}", column.name, "column", "the section routing has the new one")

    def _replaced(self, table: TableInfo, broken: Sequence[Break], oldest: int) -> str | None:
        """What is to be told where the columns that tell rows apart are other ones than at a snapshot that is still
        retained: every destination that has not come past it parks."""
        versions, names = table.versions, self._identifying.names
        for each in reversed(broken):
            if each.last < oldest:
                return None
            was_there = all(identified(versions, name, each.last) is not None for name in names)
            known = was_there and not each.by_policy
            why = replaced(versions, self._identifying, each.last, table.snapshot) if known else None
            if why is not None:
                return (
                    f"{why}, after snapshot {each.last} of the source: destinations park as schema_change that were"
                    " not past it by then, and only a reseed brings them on"
                )
        return None

    def _called(self, snapshot: int | None) -> tuple[str, str]:
        """Schema and name of the table at a snapshot; None for the newest that was seen."""
        if self._table is None:
            return self._schema, self._name
        return (self._table.schema, self._table.name) if snapshot is None else self._table.called(snapshot)

    def _dated(self, reshaped: tuple[int, ...]) -> Reshapes:
        """With the times of the newest ones, which are asked for once."""
        if self._reshapes[0] != self._histories or self._reshapes[1].snapshots != reshaped:
            times = self._catalog.times_of(reshaped[-MOST_DATED:])
            self._reshapes = self._histories, Reshapes(reshaped, times)
        return self._reshapes[1]

    def weigh(self, record_bytes: int) -> None:
        """A lake's changes are bounded by rows."""

    def measure(self, reached: Iterable[SpelledPosition]) -> None:
        """All that is measured of a lake is measured of every source."""

    def ends(self) -> TopicEnds | None:
        """A lake has no partitions."""
        return None

    def cuts(self, snapshots: Range) -> list[Cut]:
        """How a range is to be counted, from metadata alone, oldest part first. Raises ``Expired``."""
        with _as_source():
            news = self._news(snapshots.after)
            if snapshots.after not in news.times:
                raise Expired(snapshots.after)
            touches = [touch for touch in news.touches if touch.snapshot <= snapshots.through]
            if all(touch.is_maintenance for touch in touches) and self._catalog.contiguous(snapshots):
                return [Cut(snapshots, pinned=self._append_only)]
            return self._append_cuts(snapshots, touches) if self._append_only else self._change_cuts(snapshots, touches)

    def count(self, cut: Cut, routed: Collection[str]) -> CountedStep:
        """Count one cut, for all values; what is of none of the ``routed`` ones is counted apart."""
        if not cut.inserted and not cut.deleted:
            return nothing(cut.range, pinned=cut.pinned)
        wanted = frozenset(routed)
        with _as_source():
            images = self._changes(cut.range, wanted) if cut.deleted else self._insertions(cut.inserted, wanted)
        return CountedStep(
            cut.range, images.by_value(), images.total, cut.pinned, cut.oldest_touch, images.unrouted(wanted),
            images.is_partial,
        )  # fmt: skip

    def sizes(self) -> dict[str, int] | None:
        """Rows by routing value at the head, for seeds; None where the table, or the values, are too many for that."""
        with _as_source():
            everything = Range(NOT_SEEDED, self._catalog.head().snapshot)
            added = self._catalog.appended_rows(self._known().table_id, everything)
            if sum(rows for _, rows in added) > MOST_ROWS_TO_SIZE:
                return None
            found = self._of_present(self._counter.state)
        return None if found.others else {value: rows for value, rows in found.rows.items() if value is not None}

    def unknown(self, routed: Collection[str]) -> tuple[list[Offered], bool]:
        """Present routing values without a destination, those with most rows first, and whether there are more."""
        with _as_source():
            head = self._catalog.head().snapshot
            found = self._of_present(
                lambda column: self._counter.unknown(column, routed, MOST_OFFERED + 1, LONGEST_OFFERED)
            )
        offered = [
            Offered(value=f.value, whole=f.whole, digest=f.sha256[:VALUE_DIGITS], rows=f.rows, first_seen=head)
            for f in found[:MOST_OFFERED]
        ]
        return offered, len(found) > MOST_OFFERED

    def _insertions(self, parts: Sequence[Range], routed: Set[str]) -> Images:
        times = self._catalog.times_of(map(_first, parts))
        ranges = [_readable(part, times) for part in parts]
        return self._counter.changes(self._known(), self._routing_at, ranges, routed, deletes=False)

    def _changes(self, snapshots: Range, routed: Set[str]) -> Images:
        """What a range inserted and deleted, or more.

        Deletes can be missing from a range's feed once maintenance has come after it (HAZARDS, time travel); read up to
        the head they are there. So a range that was maintained since, or just now, is counted with what followed.
        """
        for _ in COUNT_TRIES:
            news = self._news(snapshots.through, _first(snapshots))
            end = news.head.snapshot if _maintained(news) else snapshots.through
            whole = _readable(Range(snapshots.after, end), news.times)
            self._look_at(end)
            images = self._counter.changes(self._known(), self._routing_at, [whole], routed, deletes=True)
            if not _maintained(self._news(end)):
                return images
        raise SourceError(
            "source_unreachable",
            f"maintenance kept coming while {snapshots} was counted",
            "it is counted again automatically",
        )

    def _news(self, after: int, *others: int) -> SourceNews:
        """What has touched the table since a snapshot, and when that and ``others`` were committed."""
        return self._catalog.news(self._known().table_id, after, [after, *others])

    def _append_cuts(self, snapshots: Range, touches: Sequence[Touch]) -> list[Cut]:
        """A pipeline without keys counts what was inserted, and nothing that maintenance shows as inserted (H5)."""
        cuts = []
        for part in self._segments(snapshots):
            within = [touch for touch in touches if part.after < touch.snapshot <= part.through]
            cuts.append(Cut(part, tuple(insertion_runs(part, within)), (), True, _oldest(within)))
        return cuts

    def _change_cuts(self, snapshots: Range, touches: Sequence[Touch]) -> list[Cut]:
        """A range that provably only appended needs no deletions scan, and may be cut into segments if it is long."""
        if not self._catalog.only_appended(self._known().table_id, snapshots, touches):
            return [Cut(snapshots, (snapshots,), (snapshots,), False, _oldest(touches))]
        parts = self._segments(snapshots)
        cuts = []
        for part in parts:
            within = [touch for touch in touches if part.after < touch.snapshot <= part.through]
            cuts.append(Cut(part, (part,) if within else (), (), len(parts) > 1, _oldest(within)))
        return cuts

    def _segments(self, snapshots: Range) -> list[Range]:
        rows = self._catalog.appended_rows(self._known().table_id, snapshots)
        return segments(rows, snapshots, self._segment_rows)

    def _known(self) -> TableInfo:
        if self._table is None:
            raise RuntimeError("nothing can be counted before the source was polled")
        return self._table

    def _look_at(self, end: int) -> None:
        """Know the table as it is at ``end``, if that is later than it was seen: a feed shows columns, and answers to
        names, as of its end, and another column may have the name of the routing column by then."""
        if self._table is not None and end <= self._table.snapshot:
            return
        table = self._require_routed(self._catalog.source_table(self._schema, self._name, end))
        if self._table is not None and table.table_uuid != self._table.table_uuid:
            raise _changed_meanwhile("is another table")
        self._table = table

    def _of_present(self, ask: Callable[[Column], T]) -> T:
        """What the table as it is now tells, asked by its routing column, whose name may be another column's when the
        answer is read. Raises ``SourceError`` where that may have been so."""
        self._look_at(self._catalog.head().snapshot)
        before = self._known()
        found = ask(self._routing())
        self._look_at(self._catalog.head().snapshot)
        if (self._known().versions, self._known().names) != (before.versions, before.names):
            raise _changed_meanwhile("changed")
        return found

    def _routing(self) -> Column:
        """The routing column as it was last seen."""
        column = self._known().identified(self._field)
        if column is None:
            raise RuntimeError("a table without its routing column is no source")
        return column

    def _routing_at(self, snapshot: int) -> Column:
        """The routing column as it is called, and of which type it is, at a snapshot: so the feed of a range shows it
        that ends there."""
        column = self._known().identified_at(self._field, snapshot)
        return self._routing() if column is None else column

    def _gone(self) -> SourceError:
        where = f"the source has no table {self._schema}.{self._name}"
        return SourceError("source_gone", where, "create it again, or correct source.schema and source.table")

    def _require_routed(self, table: TableInfo | None) -> TableInfo:
        if table is None:
            raise self._gone()
        routing = table.identified(self._field)
        if routing is None:
            said = f"the source table no longer has a column {self._field}"
            raise SourceError("schema_change", said, "bring it back, or correct routing.field")
        if (why := not_routed(routing.name, routing.type)) is not None:
            raise SourceError("schema_change", why, "correct routing.field")
        return table


def is_undone(seen: Head, head: Head, oldest: int, at: datetime | None) -> bool:
    """Whether ``seen``, once the head, is not in the history that ends in ``head``: the source was restored.

    ``at``: when the snapshot of that number was committed. A single snapshot that was expired from among retained ones
    proves nothing; destinations at such a position are probed again.
    """
    if head.snapshot < seen.snapshot:
        return True
    return seen.snapshot >= oldest and at != seen.time


def _first(snapshots: Range) -> int:
    return snapshots.inclusive()[0]


def _readable(snapshots: Range, times: Mapping[int, datetime]) -> Range:
    """Both bounds must still exist, for the first of which ``times`` is asked; beginning one snapshot early only counts
    more, harmlessly."""
    is_gone = snapshots.after > 0 and _first(snapshots) not in times
    return Range(snapshots.after - 1, snapshots.through) if is_gone else snapshots


def _maintained(news: SourceNews) -> bool:
    return any(touch.is_maintenance for touch in news.touches)


def _changed_meanwhile(what: str) -> SourceError:
    said = f"the source's table {what} while its rows were counted"
    return SourceError("source_unreachable", said, "it is counted again automatically")


def _followed(old: str, new: str, kind: str, until: str) -> str:
    return f"the source's {old} is called {new} now, and is followed; give no other {kind} the old name before {until}"


def _oldest(touches: Sequence[Touch]) -> datetime | None:
    return next((touch.time for touch in touches if not touch.is_maintenance), None)


@contextlib.contextmanager
def _as_source() -> Iterator[None]:
    """What ``shared.lake`` says of any lake, said of the source."""
    try:
        yield
    except SourceError:
        raise
    except LookupError as error:
        raise SourceError("source_unreachable", f"the source: {error}", "wait until its lake exists") from None
    except ViaduckError as error:
        raise SourceError(AS_SOURCE.get(error.type, error.type), f"the source: {error.message}", error.hint) from None
