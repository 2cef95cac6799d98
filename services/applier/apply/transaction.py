"""Phase 3: one destination, one transaction: compare and set the cursor, delete, insert, stamp, commit."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import duckdb

from services.applier.apply import fence, table_schema
from services.applier.apply.attempts import Attempt, Attempts
from services.applier.apply.carry import carry_touched, require_all, rows_of
from services.applier.apply.change import Applied, Change
from services.applier.apply.decide import Cursor, Decision, decide
from services.applier.apply.direct_commit import DirectApplier
from services.applier.apply.in_doubt import committed_files, committed_snapshot, require_files
from services.applier.apply.lake_state import TimeOf, dropped_generation_in, held_rows, require_same, stored_cursor
from services.applier.apply.maintenance import maintain
from services.applier.apply.reading import Reading, key_not_unique
from services.applier.apply.table_options import is_settled, reload_options, settle, tables_of
from services.applier.apply.unsupported_values import find_nul
from services.applier.model.task import Limits, Target
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.messages import CommitPath, Destination, ItemKind, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog import TableInfo
from shared.lake.direct.eligibility import ALWAYS_BY_EXTENSION, Reason
from shared.lake.direct.lakes import DirectLakes
from shared.lake.engine import release
from shared.lake.failure import LakeAbsent, classify, loses_attachment, misses_file, was_refused
from shared.lake.foreign_files import require_own_files
from shared.lake.pool import LakePool, OpenLake
from shared.lake.pruning import UNBELIEVED, Layout
from shared.lake.sql import columns as column_list
from shared.lake.sql import path
from shared.lake.stamp import read_stamp
from shared.lake.table import require_table

T = TypeVar("T")

unknown: TimeOf = dict[int, datetime]().get

NEVER_INLINED = "SET SESSION ducklake_default_data_inlining_row_limit = 0"
"""For what a connection writes from then on: DuckLake replaces its words in inlined rows wherever they stand (H16)."""

BUSY_TRIES = 4
BUSY_WAIT_S = 0.05


class Applier:
    """Applies changes to destination lakes through a pool of attached lakes; used by many threads at once."""

    def __init__(
        self,
        pool: LakePool,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._clock = clock
        lakes = DirectLakes(pool.connections, limits.max_open_lakes, limits.memory_limit)
        self._direct = DirectApplier(lakes, limits.deadline_s, clock)
        self.attempts = Attempts(clock)

    def close(self) -> None:
        self._direct.close()

    def probe(self, target: Target, source: TableInfo | None = None, time_of: TimeOf = unknown) -> Applied:
        """Answer from the cursor, without writing anything and without making a lake that is not there.

        Raises ``source_recreated`` where the cursor speaks of another table than ``source``, and ``source_moved`` where
        it speaks of another history of it. TLA: ``TakeProbe``.
        """
        if (known := self._answer_directly(target, source, time_of)) is not None:
            return known
        try:
            with self._use(target, sure=False) as lake:
                return self._answer(lake, target, source, time_of)
        except LakeAbsent:
            return Applied(Outcome.ALREADY_APPLIED, position=NOT_SEEDED)

    def _answer_directly(self, target: Target, source: TableInfo | None, time_of: TimeOf) -> Applied | None:
        """The same without attaching the lake; None where that has to be: after a seed it may lack its options."""
        if self._limits.commit == "extension" or target.item.kind is ItemKind.SEED:
            return None
        cursor = self._direct.sure_cursor(target)
        return None if cursor is None else _probed(cursor, target, source, time_of)

    def keep_up(self, target: Target) -> tuple[Applied, ViaduckError | None]:
        """Tidy the table up if the item fits the cursor; returns the cursor's answer, and why there was no upkeep.

        Raises ``destination_damaged`` where an acknowledgement was lost, and the merged files with it (H7).
        """
        was_open = self._pool.has_open(target.lake)
        with self._use(target) as lake:
            one_writer = lake.writing if lake.lake.sqlite_file is not None else nullcontext()
            with one_writer:
                answer = self._answer(lake, target)
                if answer.outcome is not Outcome.ALREADY_APPLIED:
                    return answer, None
                try:
                    lake.catalog.inlined_tables()
                    require_own_files(lake.catalog, lake.lake)
                    lake.inspect(*tables_of(target.destination), anew=True)
                    doing = "reading options"
                    self._guarded(lake, doing, lambda con: reload_options(con, lake, target, was_open=was_open))
                    maintain(lake, target, self._limits.deadline_s)
                except (duckdb.Error, ViaduckError) as error:
                    self._pool.evict(lake)
                    refused = classify(error, f"merging the files of {target.destination.key}")
                else:
                    return answer, None
        with self._use(target) as lake:
            self._look_at_files(lake, target.destination, None)
        return answer, refused

    def cursor(self, target: Target) -> Cursor | None:
        """The stored cursor; None where there is none, for example because the lake does not exist yet."""
        try:
            if self._limits.commit != "extension" and (seen := self._direct.cursor(target)) is not None:
                return seen
            with self._use(target, sure=False) as lake:
                return self._read(lake, "reading the cursor", lambda con: stored_cursor(con, lake, target.destination))
        except LakeAbsent:
            return None

    def apply(self, change: Change) -> Applied:
        """Bring one change about, or say why not: directly where that can be done, else by the extension.

        Raises a ``ViaduckError`` with the reason when the destination can't go on.
        """
        direct = self._apply_directly(change)
        if isinstance(direct, Applied):
            return direct
        applied = self._apply_by_extension(change)
        by_extension = CommitPath.EXTENSION if applied.outcome is Outcome.APPLIED else None
        return replace(applied, commit=by_extension, reason=direct)

    def _apply_directly(self, change: Change) -> Applied | Reason | None:
        """Raises ``not_direct`` where the extension would have to commit, and was told not to."""
        if change.is_seed or self._limits.commit == "extension":
            return None
        done = self._direct.apply(change)
        if isinstance(done, Reason) and done not in ALWAYS_BY_EXTENSION and self._limits.commit == "direct":
            raise DestinationError(
                "not_direct",
                f"the lake of {change.target.destination.key} can't be committed to directly: {done.value}",
                "set applier.commit: auto, so that DuckLake's extension commits; docs/reference/configuration.md tells"
                " what each reason means",
            )
        return done

    def _apply_by_extension(self, change: Change) -> Applied:
        """A quicker writer only means another try, with a fresh look."""
        for attempt in range(1, BUSY_TRIES + 1):
            was_open = self._pool.has_open(change.target.lake)
            try:
                with self._use(change.target, create=change.is_seed) as lake:
                    one_writer = lake.writing if lake.lake.sqlite_file is not None else nullcontext()
                    with one_writer:
                        return self._try(lake, change, was_open=was_open)
            except ViaduckError as error:
                if error.type != "destination_busy" or attempt == BUSY_TRIES:
                    raise
                wait_for_rival(attempt)
        raise AssertionError("unreachable")

    def _try(self, lake: OpenLake, change: Change, *, was_open: bool) -> Applied:
        """One transaction, and what became of its COMMIT. TLA: ``CheckDeadline``, ``SendCommit``, ``Acknowledge``."""
        con, token = lake.cursor(), uuid.uuid4().hex
        try:
            with self.attempts.begun(con, self._limits.deadline_of(change.target.item.kind)) as attempt:
                return self._transact(con, lake, change, token, attempt, was_open=was_open)
        finally:
            release(con)

    def _transact(
        self,
        con: duckdb.DuckDBPyConnection,
        lake: OpenLake,
        change: Change,
        token: str,
        attempt: Attempt,
        *,
        was_open: bool,
    ) -> Applied:
        applied: Applied | None = None
        committing = False
        began = self._clock()
        try:
            if not change.is_seed:
                reload_options(con, lake, change.target, was_open=was_open)
            lake.begin(con)
            applied = self._seed(con, lake, change, token) if change.is_seed else self._move(con, lake, change, token)
            deadline_s = self._limits.deadline_of(change.target.item.kind)
            if self._clock() - began > deadline_s:
                raise DestinationError(
                    "deadline_exceeded",
                    f"the transaction took longer than {deadline_s:g} s and was rolled back (H6)",
                    f"the destination is slow; raise applier.{'seed_' if change.is_seed else ''}deadline_seconds if it"
                    " stays so. It is tried again",
                )
            attempt.commits()
            committing = True
            con.execute("COMMIT")
            if change.is_seed:
                settle(con, lake, change.target)
            elif change.pinned is not None and lake.users == 1:
                lake.layouts.committed(change.pinned + 1)
            return applied
        except fence.CursorMoved:
            _rollback(con)
            return self._answer(lake, change.target, change.table, change.time_of)
        except ViaduckError:
            _rollback(con)
            raise
        except duckdb.Error as error:
            _rollback(con)
            return self._failed(lake, change, token, error, applied if committing else None)

    # -- inside the transaction ---------------------------------------------------------------------------------------

    def _move(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: Change, token: str) -> Applied:
        """One item of changes, or an advance: the cursor's compare-and-set is the first write."""
        item, destination = change.target.item, change.target.destination
        if change.through <= item.expected:
            raise fence.CursorMoved  # nowhere to move: a stamp of an empty range would claim that something was applied
        net = max(change.counts.touched, change.counts.upserts)
        fence.move_cursor(con, lake.alias, change.move(net))
        deleted = inserted = 0
        if change.reading is not None:
            layout = _layout(con, lake, change)
            _require_carried(change, layout)
            table_schema.follow_columns(con, lake.alias, destination, change.reading.columns)
            deleted = self._delete(con, lake, change, change.reading, layout)
            inserted = self._insert(con, lake, change, change.reading)
        self._stamp(con, lake, change, token, item.after, deleted, inserted)
        counted = None if item.rows_applied is None else item.rows_applied + net
        return Applied(Outcome.APPLIED, change.through, change.through, deleted, inserted, rows_applied=counted)

    def _seed(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: Change, token: str) -> Applied:
        """Replace the table's content and begin a generation, in one transaction."""
        item, destination, reading = change.target.item, change.target.destination, change.reading
        assert reading is not None  # noqa: S101 - a seed always carries the rows that it found, if only none
        seen = stored_cursor(con, lake, destination)
        if decide(seen, item, dropped_generation_in(lake, destination, seen)) is not Decision.APPLY:
            raise fence.CursorMoved
        rows = change.counts.upserts
        if seen is None:
            fence.create_cursor(con, lake.alias, change.move(rows))
        else:
            fence.replace_cursor(con, lake.alias, change.move(rows), seen)
        held = held_rows(lake, destination)
        con.execute(NEVER_INLINED)
        if held is not None:
            _require_carried(change, _layout(con, lake, change))
        table_schema.prepare_seed(con, lake.alias, destination, reading.columns, held, ours=seen is not None)
        deleted = held or 0
        inserted = self._insert(con, lake, change, reading)
        self._stamp(con, lake, change, token, NOT_SEEDED if seen is None else seen.position, deleted, inserted)
        return Applied(Outcome.APPLIED, change.through, change.through, deleted, inserted, rows_applied=rows)

    def _delete(
        self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: Change, reading: Reading, layout: Layout
    ) -> int:
        """Delete the touched keys that exist. It costs less, and leaves fewer files, than a MERGE."""
        if not reading.keys or not change.counts.touched:
            return 0
        table = table_schema.table_path(lake.alias, change.target.destination)
        touched = carry_touched(con, reading, change.number, change.counts.touched)
        same = reading.same_keys("t", "x", layout, change.counts.harmless_keys)
        sql = f"DELETE FROM {table} AS t USING {touched} AS x WHERE {same}"
        deleted = int(con.execute(sql).fetchall()[0][0])
        if deleted and reading.only_inserts:
            self._refuse_second_row(con, lake, change, reading, table, touched)
        return deleted

    def _refuse_second_row(
        self,
        con: duckdb.DuckDBPyConnection,
        lake: OpenLake,
        change: Change,
        reading: Reading,
        table: str,
        touched: str,
    ) -> None:
        """A range that only inserted met a key that is there already: two live rows, so the key is none."""
        shown = " || ', ' || ".join(f"coalesce(CAST(k{i} AS VARCHAR), 'NULL')" for i in range(len(reading.keys)))
        _rollback(con)
        lake.begin(con)
        require_table(con, table)
        carry_touched(con, reading, change.number, change.counts.touched)
        same = reading.same_keys("t", "x", UNBELIEVED, change.counts.harmless_keys)
        doubled = f"SELECT {shown} FROM {touched} x WHERE EXISTS (SELECT 1 FROM {table} t WHERE {same}) LIMIT 1"
        found = con.execute(doubled).fetchall()
        raise key_not_unique(reading.keys, str(found[0][0]) if found else "?", 2, change.through)

    def _insert(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: Change, reading: Reading) -> int:
        if not change.counts.upserts:
            return 0
        table = table_schema.table_path(lake.alias, change.target.destination)
        names = column_list(tuple(column.name for column in reading.columns))
        with rows_of(con, reading, change.number, change.counts.upserts) as rows:
            inserted = int(con.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {rows}").fetchall()[0][0])
        require_all(inserted, change.counts.upserts, "rows")
        return inserted

    def _stamp(
        self,
        con: duckdb.DuckDBPyConnection,
        lake: OpenLake,
        change: Change,
        token: str,
        after: int,
        deleted: int,
        inserted: int,
    ) -> None:
        item = change.target.item
        fence.stamp(
            con, lake.alias, fence.Stamp(item, item.kind.value, after, change.through, token, deleted, inserted)
        )

    # -- what the cursor says, and what an error means ----------------------------------------------------------------

    def _answer(
        self, lake: OpenLake, target: Target, source: TableInfo | None = None, time_of: TimeOf = unknown
    ) -> Applied:
        """Read the cursor and say what it means for the item. TLA: ``DecideAnew``, ``OfCursor``."""
        cursor = self._read(lake, "reading the cursor", lambda con: stored_cursor(con, lake, target.destination))
        position = NOT_SEEDED if cursor is None else cursor.position
        if target.item.kind is ItemKind.PROBE and cursor is None:
            return Applied(Outcome.ALREADY_APPLIED, position)
        dropped_generation = dropped_generation_in(lake, target.destination, cursor)
        decision = decide(cursor, target.item, dropped_generation)
        if decision is Decision.FENCED:
            # After a drop: the first generation that may begin, for a control that does not know of the drop.
            return Applied(
                Outcome.FENCED, position, generation=dropped_generation + 1 if cursor is None else cursor.generation
            )
        if cursor is not None:
            require_same(cursor, target, source, time_of)
        if decision is Decision.APPLY:
            raise DestinationError(
                "destination_busy",
                f"the cursor of {target.destination.key} moved while it was read",
                "it is tried again",
            )
        if cursor is None and target.item.expected == NOT_SEEDED:
            return Applied(Outcome.GAP, position)
        if cursor is None:
            raise DestinationError(
                "cursor_damaged",
                f"the cursor of {target.destination.key} is gone, which was at {target.item.expected}",
                "another program dropped it; reseed the destination",
            )
        self._require_last_files(lake, target.destination, cursor)
        if decision is Decision.GAP:
            return Applied(Outcome.GAP, position)
        if target.item.kind is ItemKind.SEED and not is_settled(lake, target):
            self._guarded(lake, "setting options", lambda con: settle(con, lake, target))  # who seeded may have died
        return Applied(Outcome.ALREADY_APPLIED, position, rows_applied=cursor.rows_applied)

    def _require_last_files(self, lake: OpenLake, destination: Destination, cursor: Cursor) -> None:
        """Report no position before its files were seen: a commit without acknowledgement may have lost them (H7).

        The process that committed it may have died before it looked, and a later commit would hide the loss. If its
        stamp was expired, every file of the table is looked at.
        """
        said = read_stamp(lake.catalog.stamp_at(cursor.snapshot))
        snapshot = cursor.snapshot if said is not None and said.item == cursor.item else None
        self._look_at_files(lake, destination, snapshot)

    def _look_at_files(self, lake: OpenLake, destination: Destination, snapshot: int | None) -> None:
        doing = "looking for committed files"
        files = self._read(lake, doing, lambda con: committed_files(con, lake, destination, snapshot))
        self._guarded(lake, doing, lambda con: require_files(con, destination, files))

    def _failed(
        self, lake: OpenLake, change: Change, token: str, error: duckdb.Error, committing: Applied | None
    ) -> Applied:
        """Say what an error means. One during COMMIT (of ``committing``) is unknown, not failed: the token tells.

        TLA: ``Cut``.
        """
        where = f"{change.target.item.kind} of {change.target.destination.key} through {change.through}"
        known = classify(error, where)
        if committing is not None and known.type != "destination_busy" and not was_refused(error):
            self._pool.evict(lake)
            return self._resolve_unknown(change, token, committing, known)
        if misses_file(error):
            self._look_at_files(lake, change.target.destination, None)
        if loses_attachment(error) or known.type in ("internal", "storage_failed"):
            self._pool.evict(lake)
        raise known

    def _resolve_unknown(self, change: Change, token: str, applied: Applied, error: ViaduckError) -> Applied:
        with self._use(change.target) as lake:
            snapshot = committed_snapshot(lake, token)
            if snapshot is None:
                raise DestinationError(
                    "commit_unknown", error.message, "no trace of the commit; it is tried again by itself"
                )
            self._look_at_files(lake, change.target.destination, snapshot)
            return applied

    @contextlib.contextmanager
    def _use(self, target: Target, *, create: bool = False, sure: bool = True) -> Iterator[OpenLake]:
        """The target's lake, open, once its catalog was found to hold no SQL that the target's tables would run."""
        with self._pool.use(target.lake, read_only=False, create=create, sure=sure) as lake:
            lake.inspect(*tables_of(target.destination))
            yield lake

    def _read(self, lake: OpenLake, doing: str, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Reads in one transaction, in which what is a table stays one."""

        def in_one(con: duckdb.DuckDBPyConnection) -> T:
            lake.begin(con)
            try:
                return work(con)
            finally:
                _rollback(con)

        return self._guarded(lake, doing, in_one)

    def _guarded(self, lake: OpenLake, doing: str, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run ``work`` on a cursor of its own; an error evicts the lake and comes out typed."""
        con = lake.cursor()
        try:
            return work(con)
        except duckdb.Error as error:
            self._pool.evict(lake)
            raise classify(error, f"{doing} in the lake at {lake.lake}") from None
        finally:
            release(con)


def wait_for_rival(attempt: int) -> None:
    time.sleep(BUSY_WAIT_S * attempt * (1 + random.random()))  # noqa: S311 - spreads rivals, guards nothing


def _probed(cursor: Cursor, target: Target, source: TableInfo | None, time_of: TimeOf) -> Applied | None:
    """What the cursor means for the item, where the files of its commit are sure to be there; None for what may be
    applied on top of it."""
    decision = decide(cursor, target.item)
    if decision is Decision.FENCED:
        return Applied(Outcome.FENCED, cursor.position, generation=cursor.generation)
    require_same(cursor, target, source, time_of)
    if decision is Decision.ALREADY_APPLIED:
        return Applied(Outcome.ALREADY_APPLIED, cursor.position, rows_applied=cursor.rows_applied)
    return Applied(Outcome.GAP, cursor.position) if decision is Decision.GAP else None


def _layout(con: duckdb.DuckDBPyConnection, lake: OpenLake, change: Change) -> Layout:
    """How the destination's table is laid out in the snapshot that the transaction has pinned."""
    pinned = int(con.execute(f"SELECT id FROM {path(lake.alias)}.current_snapshot()").fetchall()[0][0])
    change.pinned = pinned
    table = change.target.destination.schema_name, change.target.destination.table
    return lake.layouts.at(pinned, table, lambda: lake.catalog.layout(*table, pinned))


def _require_carried(change: Change, layout: Layout) -> None:
    """Raises ``value_not_carried`` for a text that a table so partitioned can't hold."""
    if layout.partitioned and change.reading is not None and change.counts.upserts:
        refused = find_nul(change.reading, change.number, layout.partitioned)
        if refused is not None:
            raise refused


def _rollback(con: duckdb.DuckDBPyConnection) -> None:
    # DuckLake ends a transaction whose COMMIT fails, and closing the cursor ends any other.
    with contextlib.suppress(duckdb.Error):
        con.execute("ROLLBACK")
