"""Phases 1 and 2 on the lake: read a range of the source once, and leave the net changes in memory tables.

What the change feed says is not trusted (H2, H5): it only tells which keys were touched; the state at the end of the
range tells what they are now. ``resolve`` says the same in ten lines of Python, and the property tests compare.

A reading happens in one source transaction, so the snapshot that its first statement pins is the head for all of it,
and no maintenance can come between the feed and the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import duckdb

from services.applier.apply.source.columns import carry_terms, follow_columns, name_at, require_routed
from services.applier.apply.source.identity import refusal
from services.applier.apply.source.reading import ChangeCounts, Reading
from services.applier.apply.source.refusals import behind, end_expired, expired, expired_start, require_insertions
from services.applier.apply.source.row_counts import count_rows, count_touched
from services.applier.apply.source.unsupported_values import require_carried_names
from services.applier.model.task import SourceTable, Target
from shared.contracts.errors import DestinationError, SourceError
from shared.contracts.layout import SAME
from shared.contracts.messages import ItemKind, SeedMode, WorkItem
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.lake.attached.pool import OpenLake
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.catalog.reader import Column, TableInfo, TableView
from shared.lake.catalog.runs import insertion_runs
from shared.lake.catalog.touches import Touch
from shared.lake.changes.changed_rows import ChangedRows, UnlikeFiles, by_functions
from shared.lake.columns.history import fields_at
from shared.lake.columns.identity import Identifying
from shared.lake.columns.mapping import columns_as_of
from shared.lake.pruning import MOST_BOUND, TEXT, among, comparison, is_harmless, may_prune
from shared.lake.sql import ident, path


class Feed:
    """Reads one source table through one attached lake, on a DuckDB cursor of its own."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, source: SourceTable) -> None:
        self._con = con
        self._lake = lake
        self._source = source
        self._routing = source.routing
        self._looks: dict[int, TableView | None] = {}
        self._times: Mapping[int, datetime] = {}
        self._head = self._after = NOT_SEEDED
        """The pinned head; since when a look tells what has touched the table."""

    def read(self, kind: ItemKind, targets: Sequence[tuple[int, Target]], *, sparing: bool = False) -> Reading:
        """Read what the targets, which agree on range and kind, need. Raises a ``ViaduckError``.

        ``sparing``: hold the keys of the range and the targets' own rows, but never all rows of the range at once. It
        takes longer, and comes to the same; without key columns there is no such way.

        TLA: ``TakeSeed``, ``TakeAdvance``, ``TakeChanges``.
        """
        item = targets[0][1].item
        with self._pinned() as head:
            if all(head < target.item.through for _, target in targets):
                raise behind(head, item.through)
            self._look(targets, item.through if item.pinned or kind is ItemKind.ADVANCE else head)
            if kind is ItemKind.ADVANCE:
                return self._nothing(targets, item.through)
            if kind is ItemKind.SEED:
                return self._seed(targets, head)
            reading = self._pinned_inserts(targets, sparing=sparing) if item.pinned else None
            return reading or self._changes(targets, head, sparing=sparing)

    def _pinned_inserts(self, targets: Sequence[tuple[int, Target]], *, sparing: bool) -> Reading | None:
        """The reading of a range whose end is exact; None where only the head can be read safely."""
        cut = targets[0][1].item.range
        if self._routing.append_only:
            return self._append_only(targets, cut)
        table = self._table(cut.through)
        self._require_history(cut.after)
        if not self._only_appended(table, cut):
            return None
        if sparing:
            self._lake.catalog.require_shown_right(table.table_id, cut.through)
            return self._by_keys(targets, cut, f" AT (VERSION => {cut.through:d})")
        return self._inserted(targets, cut)

    @contextmanager
    def _pinned(self) -> Iterator[int]:
        """One source transaction; yields the head that it sees from its first statement on."""
        self._con.execute("BEGIN")
        try:
            pinned = self._con.execute(f"SELECT id FROM {ident(self._lake.alias)}.current_snapshot()").fetchall()
            self._head = int(pinned[0][0])
            yield self._head
            self._con.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        try:
            self._con.execute("ROLLBACK")
        except duckdb.Error as error:
            if "no transaction is active" not in str(error):
                self._lake.doomed = True

    # -- what is read -------------------------------------------------------------------------------------------------

    def _nothing(self, targets: Sequence[tuple[int, Target]], through: int) -> Reading:
        """No row: only the table's identity and columns at ``through``."""
        self._require_end(through)
        reading = self._begin(targets, through, only_inserts=False)
        reading.counts = {number: ChangeCounts() for number, _ in targets}
        return reading

    def _seed(self, targets: Sequence[tuple[int, Target]], head: int) -> Reading:
        """Every row of the targets' routing values at the end: one scan for all of them."""
        item, mode = targets[0][1].item, targets[0][1].destination.seed_mode
        through = item.through if item.pinned else head
        if item.pinned:
            chosen = all(target.destination.seed_at is not None for _, target in targets)
            self._require_end(through, is_chosen=chosen)
        reading = self._begin(targets, through, only_inserts=False)
        self._load_targets(reading, targets)
        at = f" AT (VERSION => {through:d})" if item.pinned else ""
        if item.pinned:
            self._lake.catalog.require_shown_right(reading.table.table_id, through)
        nothing = " AND false" if mode is SeedMode.LATEST else ""
        bound = self._bound_routing(reading, "s", len(targets))
        with reading.timed("state"):
            self._con.execute(
                f"CREATE TABLE {reading.memory('rows')} AS SELECT {self._hidden(reading, 'g.d', 'false')}, s.*"
                f" FROM {self._path_of(reading.table)}{_alias('s', at)} JOIN {reading.memory('targets')} g"
                f" ON {self._same_routing(reading, 's', 'g')}{nothing}{bound} ORDER BY g.d",
                _bytes_of(targets) if bound else [],
            )
        count_rows(reading)
        return reading

    def _changes(self, targets: Sequence[tuple[int, Target]], head: int, *, sparing: bool) -> Reading:
        """The changes after the targets' common frontier, up to the head."""
        whole = Range(targets[0][1].item.after, head)
        self._require_history(whole.after)
        table = self._table(head)
        if not sparing and self._only_appended(table, whole):
            return self._inserted(targets, whole)
        return self._by_keys(targets, whole)

    def _by_keys(self, targets: Sequence[tuple[int, Target]], snapshots: Range, at: str = "") -> Reading:
        """Which keys the range touched, then what rows they have at its end: at the head, unless ``at`` says where."""
        reading = self._begin(targets, snapshots.through, only_inserts=False)
        self._load_targets(reading, targets)
        with reading.timed("feed"):
            self._load_feed(reading, snapshots)
            self._load_touched(reading)
        with reading.timed("state"):
            self._load_state(reading, targets, at)
        count_touched(reading)
        count_rows(reading)
        return reading

    def _inserted(self, targets: Sequence[tuple[int, Target]], snapshots: Range) -> Reading:
        """The shortcut for a range that only appended: its insertions are the net change, no state is read."""
        reading = self._begin(targets, snapshots.through, only_inserts=True)
        self._load_targets(reading, targets)
        with reading.timed("feed"):
            self._load_inserted(reading, [snapshots])
            keys = "".join(f", {ident(name)} AS k{i}" for i, name in enumerate(reading.keys))
            self._con.execute(
                f"CREATE TABLE {reading.memory('touched')} AS"
                f" SELECT DISTINCT {reading.number_column} AS d{keys} FROM {reading.memory('rows')} ORDER BY d"
            )
        count_touched(reading)
        count_rows(reading)
        return reading

    def _append_only(self, targets: Sequence[tuple[int, Target]], snapshots: Range) -> Reading:
        """A pipeline without keys: every row that was inserted in the range, and nothing that maintenance shows."""
        catalog = self._lake.catalog
        self._require_history(snapshots.after)
        if not catalog.contiguous(snapshots):
            raise expired(snapshots.after, catalog.oldest())
        table = self._table(snapshots.through)
        touches = self._touches(snapshots)
        taken_back = catalog.taken_back(table.table_id, snapshots)
        for touch in touches:
            require_insertions(touch, self._routing, deletes=touch.snapshot in taken_back)
        reading = self._begin(targets, snapshots.through, only_inserts=True)
        self._load_targets(reading, targets)
        with reading.timed("feed"):
            self._load_inserted(reading, insertion_runs(snapshots, touches))
        count_rows(reading, unique=False)
        return reading

    # -- how it is read -----------------------------------------------------------------------------------------------

    def _look(self, targets: Sequence[tuple[int, Target]], at: int) -> None:
        """Ask at once for all that has to be known of the table at a snapshot, and of the snapshots which the items
        name."""
        items = [target.item for _, target in targets if target.item.kind is not ItemKind.SEED]
        wanted = {each for item in items for each in (item.expected, item.after)}
        wanted |= {item.range.inclusive()[0] for item in items if not item.range.is_empty}
        wanted |= {item.seen.snapshot for item in items if item.seen is not None}
        wanted |= {target.item.through for _, target in targets if _is_read_at_its_end(target.item)}
        self._after = min((item.after for item in items if item.kind is ItemKind.CHANGES), default=at)
        self._looks[at] = look = self._looked(at, wanted)
        self._times = self._lake.catalog.times_of(wanted) if look is None else look.times

    def _looked(self, at: int, snapshots: Collection[int] = ()) -> TableView | None:
        return self._lake.catalog.source_look(self._source.schema, self._source.table, at, snapshots, self._after)

    def _look_at(self, at: int) -> TableView:
        """What was seen of the source table as it is at a snapshot, which is looked at once for a reading."""
        look = self._looks[at] if at in self._looks else self._looked(at)
        if look is None:
            name = f"{self._source.schema}.{self._source.table}"
            hint = "create the table again, or correct source.table; it is tried again automatically"
            raise SourceError("source_behind", f"the source has no table {name} at snapshot {at}", hint)
        self._looks[at] = look
        return look

    def _table(self, at: int) -> TableInfo:
        return self._look_at(at).table

    def _touches(self, snapshots: Range) -> tuple[Touch, ...]:
        """Of the table of that range's end. Raises ``ValueError`` where others may have been before those known."""
        if snapshots.after < self._after:
            raise ValueError(f"touches are known since {self._after}, not of {snapshots}")
        return tuple(touch for touch in self._look_at(snapshots.through).touches if touch.snapshot > snapshots.after)

    def _only_appended(self, table: TableInfo, snapshots: Range) -> bool:
        return self._lake.catalog.only_appended(table.table_id, snapshots, self._touches(snapshots))

    def _require_history(self, after: int) -> None:
        if after not in self._times:
            raise expired(after, self._lake.catalog.oldest())

    def _require_end(self, through: int, *, is_chosen: bool = False) -> None:
        """The source may have expired it since the reader looked. ``is_chosen``: an operator has chosen it."""
        if through not in self._times:
            refuse = expired_start if is_chosen else end_expired
            raise refuse(through, self._lake.catalog.oldest())

    def _begin(self, targets: Sequence[tuple[int, Target]], through: int, *, only_inserts: bool) -> Reading:
        look = self._look_at(through)
        table, layout = look.table, look.layout
        at = "" if through == self._head else f" AT (VERSION => {through:d})"
        described = self._con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {self._path_of(table)}{at})"
        ).fetchall()
        self._lake.remembered.saw(through, table.at)
        columns = tuple(Column(name, declared, _default_of(table, name)) for name, declared in described)
        routing, *keys = (
            name_at(table, configured, through) for configured in (self._routing.field, *self._routing.key_columns)
        )
        reading = Reading(
            self._con, table, columns, through, only_inserts, routing, tuple(keys), layout=layout, times=self._times
        )
        reading.arrangement = self._arrangement(targets, table)
        refused = ((number, refusal(target.item, table, through, self._times)) for number, target in targets)
        reading.refused = {number: error for number, error in refused if error is not None}
        follow_columns(reading, targets, Identifying(self._routing.field, self._routing.key_columns))
        carry_terms(self._con, self._lake.catalog, reading, targets)
        ahead = [(number, target.item.through) for number, target in targets if target.item.through > through]
        reading.refused |= {number: behind(through, end) for number, end in ahead}
        require_carried_names(columns)
        require_routed(reading)
        return reading

    def _path_of(self, table: TableInfo) -> str:
        """By the name that it has at the snapshot as of which it was looked up."""
        return path(self._lake.alias, table.schema, table.name)

    def _arrangement(self, targets: Sequence[tuple[int, Target]], table: TableInfo) -> Arrangement | None:
        """How the source is laid out, where a seed is to lay out a destination alike."""
        layouts = [target.destination.layout for _, target in targets if target.item.kind is ItemKind.SEED]
        if not any(each is not None and SAME in (each.partitioned_by, each.sorted_by) for each in layouts):
            return None
        return self._lake.catalog.arrangement(table.schema, table.name, table.snapshot)

    def _load_targets(self, reading: Reading, targets: Sequence[tuple[int, Target]]) -> None:
        """Numbers and routing values as a table; the value is cast once, to the routing column's type."""
        declared = reading.type_of(reading.routing)
        numbers = [number for number, _ in targets]
        values = [target.destination.routing_value for _, target in targets]
        self._con.execute(
            f"CREATE TABLE {reading.memory('targets')} AS SELECT d, TRY_CAST(v AS {declared}) AS r"
            " FROM (SELECT unnest(?::INTEGER[]) AS d, unnest(?::VARCHAR[]) AS v)",
            [numbers, values],
        )
        for number, _ in targets:
            reading.counts[number] = ChangeCounts()
        uncast = self._con.execute(f"SELECT d FROM {reading.memory('targets')} WHERE r IS NULL").fetchall()
        for (number,) in uncast:
            value = next(t.destination.routing_value for n, t in targets if n == number)
            reading.refused[number] = DestinationError(
                "invalid_destination",
                f"the routing value {value!r} is no {declared}, which column {reading.routing!r} is",
                "correct the destination's routing_value",
            )

    def _bounds(self, snapshots: Range) -> tuple[int, int]:
        """Inclusive bounds that both still exist. Beginning one snapshot early only touches more keys, harmlessly."""
        first, last = snapshots.inclusive()
        return (first if first in self._times else snapshots.after), last

    def _load_feed(self, reading: Reading, snapshots: Range) -> None:
        """Routing values and keys of all images, whole at once (H4): by files where these tell them, as of the head
        that is read, and else by DuckLake's functions."""
        found = self._lake.changes.changed(reading.table, (reading.routing, *reading.keys), snapshots)
        if found is None or found.newest != self._head:
            first, last = self._bounds(snapshots)
            self._load_images(reading, by_functions(self._lake.alias, reading.table.called(last), first, last))
            return
        try:
            self._load_images(reading, found)
        except duckdb.Error as error:
            if self._lake.changes.is_unlike(reading.table, error):
                raise UnlikeFiles(str(error)) from None
            raise

    def _load_images(self, reading: Reading, changed: ChangedRows) -> None:
        keys = "".join(f", {ident(name)} AS k{i}" for i, name in enumerate(reading.keys))
        values = f"{ident(reading.routing)} AS r{keys}"
        self._con.execute(
            f"CREATE TABLE {reading.memory('feed')} AS SELECT {values}, false AS was_there FROM {changed.inserted.scan}"
            f" UNION ALL SELECT {values}, true FROM {changed.deleted.scan}",
            [*changed.inserted.values, *changed.deleted.values],
        )

    def _load_touched(self, reading: Reading) -> None:
        keys = "".join(f", f.k{i}" for i in range(len(reading.keys)))
        self._con.execute(
            f"CREATE TABLE {reading.memory('touched')} AS"
            f" SELECT g.d, g.r{keys}, bool_or(f.was_there) AS was_there FROM {reading.memory('feed')} f"
            f" JOIN {reading.memory('targets')} g ON f.r = g.r GROUP BY ALL ORDER BY g.d"
        )

    def _load_state(self, reading: Reading, targets: Sequence[tuple[int, Target]], at: str) -> None:
        """The rows that the touched keys have; at the head by the pinned transaction's own view, no time travel."""
        bound = self._bound_routing(reading, "s", len(targets))
        self._con.execute(
            f"CREATE TABLE {reading.memory('rows')} AS SELECT {self._hidden(reading, 't.d', 't.was_there')}, s.*"
            f" FROM {self._path_of(reading.table)}{_alias('s', at)} JOIN {reading.memory('touched')} t"
            f" ON {self._same_routing(reading, 's', 't')} AND {self._same_keys(reading, 's', 't')}{bound} ORDER BY t.d",
            _bytes_of(targets) if bound else [],
        )

    def _load_inserted(self, reading: Reading, runs: Sequence[Range]) -> None:
        """The inserted rows of each run, in the columns of the reading's end; younger columns show their default."""
        hidden = self._hidden(reading, "g.d", "false")
        called = reading.table.called
        rows = [by_functions(self._lake.alias, called(run.through), *run.inclusive()).inserted for run in runs]
        parts = [f"SELECT {self._as_of(reading, run)} FROM {each.scan}" for run, each in zip(runs, rows, strict=True)]
        nothing = f"SELECT * FROM {self._path_of(reading.table)} AT (VERSION => {reading.through:d}) WHERE false"
        inserted = " UNION ALL ".join(parts) or nothing
        self._con.execute(
            f"CREATE TABLE {reading.memory('rows')} AS WITH inserted AS MATERIALIZED ({inserted})"
            f" SELECT {hidden}, i.* FROM inserted i JOIN {reading.memory('targets')} g"
            f" ON i.{ident(reading.routing)} = g.r ORDER BY g.d",
            [value for each in rows for value in each.values],
        )

    def _as_of(self, reading: Reading, run: Range) -> str:
        """The reading's columns as a run's end knows them: a column that came later is its default for every row."""
        if run.through == reading.through:
            return ", ".join(ident(column.name) for column in reading.columns)
        versions = reading.table.versions
        return columns_as_of(fields_at(versions, run.through), fields_at(versions, reading.through))

    def _bound_routing(self, reading: Reading, left: str, count: int) -> str:
        """A condition beside the join that spares the scan the rows of others; ``_bytes_of`` is bound in it."""
        if reading.type_of(reading.routing) != TEXT or count > MOST_BOUND:
            return ""
        column = f"{left}.{ident(reading.routing)}"
        return f" AND {among(column)}"

    def _same_routing(self, reading: Reading, left: str, right: str) -> str:
        """The join on the routing column: plain, so that files are left out, where these may be believed (H16, H17).

        For text only where each file holds one value: one tenant's row makes the statistics of its file wrong for all.
        """
        field = reading.routing
        declared = reading.type_of(field)
        harmless = declared == TEXT and field.lower() in reading.layout.single and self._all_harmless(reading)
        prune = may_prune(declared, reading.layout, harmless=harmless)
        return comparison(f"{left}.{ident(field)}", f"{right}.r", declared, prune=prune)

    def _all_harmless(self, reading: Reading) -> bool:
        found = self._con.execute(f"SELECT bool_and({is_harmless('r')}) FROM {reading.memory('targets')}").fetchall()
        return bool(found[0][0])

    def _same_keys(self, reading: Reading, left: str, right: str) -> str:
        """The join on the key columns; NULL equals NULL. Plain equality where no NULL occurs, since it prunes files."""
        nulls = " OR ".join(f"k{i} IS NULL" for i in range(len(reading.keys)))
        found = self._con.execute(f"SELECT 1 FROM {reading.memory('touched')} WHERE {nulls} LIMIT 1").fetchall()
        reading.null_keys = bool(found)
        return reading.same_keys(left, right, reading.layout, [False] * len(reading.keys))

    def _hidden(self, reading: Reading, number: str, was_there: str) -> str:
        return f"{number} AS {reading.number_column}, {was_there} AS {reading.was_there_column}"


def _is_read_at_its_end(item: WorkItem) -> bool:
    """Whether the source has to keep the snapshot where an item ends; of changes it is that where they begin."""
    return item.kind is ItemKind.ADVANCE or (item.kind is ItemKind.SEED and item.pinned)


def _bytes_of(targets: Sequence[tuple[int, Target]]) -> list[list[bytes]]:
    """Routing values of text as what ``among`` compares."""
    return [[target.destination.routing_value.encode() for _, target in targets]]


def _alias(name: str, at: str) -> str:
    """DuckDB wants the alias before AT."""
    return f" {name}{at}"


def _default_of(table: TableInfo, name: str) -> str | None:
    column = table.column(name)
    return None if column is None else column.default
