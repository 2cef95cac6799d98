"""Phase 3: one destination, one transaction: compare and set the cursor, delete, insert, stamp, commit."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

import duckdb

from services.applier.apply.attempts import Attempt, Attempts
from services.applier.apply.columns import evolve, left_out, terms
from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Decision, decide
from services.applier.apply.cursor.in_doubt import committed_snapshot
from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.destination import table_schema
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.destination.lake_state import dropped_generation_in, held_rows, stored_cursor, table_look
from services.applier.apply.destination.lakes import DestinationLakes, roll_back
from services.applier.apply.destination.lay_out import require_encrypted
from services.applier.apply.destination.seed_layout import is_encrypted, lay_out_seed, require_written
from services.applier.apply.destination.table_options import has_options, reload_options, set_options
from services.applier.apply.direct.commit import DirectApplier
from services.applier.apply.maintenance.catalog_rows import forget_bounds
from services.applier.apply.rewind import rewind
from services.applier.apply.source.carry import carry_touched, require_all, rows_of
from services.applier.apply.source.reading import Reading, key_not_unique
from services.applier.apply.upkeep import Upkeeper
from services.applier.model.task import Limits, Target
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.messages import CommitPath, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.catalog.looks import TableLook
from shared.lake.checks.layout_keys import keys_of
from shared.lake.columns.owners import require_kept
from shared.lake.columns.terms import NOT_CARRIED
from shared.lake.connection.engine import release
from shared.lake.direct.eligibility import ALWAYS_BY_EXTENSION, ExtensionReason
from shared.lake.direct.lakes import DirectLakes
from shared.lake.failure import classify, loses_attachment, misses_file, was_refused
from shared.lake.pruning import UNBELIEVED, FileLayout
from shared.lake.sql import columns as column_list
from shared.lake.table import require_table

T = TypeVar("T")

NEVER_INLINED = "SET SESSION ducklake_default_data_inlining_row_limit = 0"
"""For what a connection writes from then on: DuckLake replaces its words in inlined rows wherever they stand (H16)."""

BUSY_TRIES = 4
BUSY_WAIT_S = 0.05


class DestinationApplier:
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
        self._direct = DirectApplier(lakes, limits, clock)
        self._destinations = DestinationLakes(pool)
        self.answers = CursorAnswers(self._destinations, None if limits.commit == "extension" else self._direct)
        self.attempts = Attempts(clock)
        self._upkeeper = Upkeeper(self._destinations, self.answers, limits)

    def close(self) -> None:
        self._direct.close()

    def knows(self, target: Target) -> bool:
        """Whether another change of the target costs less here than where nothing was done for it yet."""
        return self._pool.has_open(target.lake) or self._direct.knows(target)

    def keep_up(self, target: Target) -> Applied:
        """The target's upkeep, and what it came to (``Upkeeper``)."""
        return self._upkeeper.keep_up(target)

    def apply(self, change: DestinationChange) -> Applied:
        """Bring one change about, or say why not: directly where that can be done, else by the extension.

        Raises a ``ViaduckError`` with the reason when the destination can't go on.
        """
        direct = self._apply_directly(change)
        if isinstance(direct, Applied):
            if change.evolution is not None and change.steps:
                self._pool.evict_of(change.target.lake, read_only=False)  # H12
            return direct
        applied = self._apply_by_extension(change)
        by_extension = CommitPath.EXTENSION if applied.outcome is Outcome.APPLIED else None
        return replace(applied, commit=by_extension, reason=direct)

    def _apply_directly(self, change: DestinationChange) -> Applied | ExtensionReason | None:
        """Raises ``not_direct`` where the extension would have to commit changes, and was told not to."""
        if self._limits.commit == "extension":
            return None
        if change.target.is_spelled and change.is_seed:
            return ExtensionReason.TOPIC_SEED
        done = self._direct.apply(change)
        if change.is_seed:
            return done
        if isinstance(done, ExtensionReason) and done not in ALWAYS_BY_EXTENSION and self._limits.commit == "direct":
            raise DestinationError(
                "not_direct",
                f"the lake of {change.target.destination.key} can't be committed to directly: {done.value}",
                "set applier.commit: auto, so that DuckLake's extension commits; docs/reference/configuration.md tells"
                " what each reason means",
            )
        return done

    def _apply_by_extension(self, change: DestinationChange) -> Applied:
        """A quicker writer only means another try, with a fresh look.

        The first try loses no file (H7), but can't tell why its COMMIT failed; the next one can.
        """
        for attempt in range(1, BUSY_TRIES + 1):
            keeps_files = attempt == 1 and self._keeps_files(change)
            try:
                with self._lake_of(change, keeps_files=keeps_files) as (lake, was_open):
                    one_writer = lake.writing if lake.lake.sqlite_file is not None else nullcontext()
                    with one_writer:
                        return self._try(lake, change, was_open=was_open)
            except ViaduckError as error:
                is_busy = error.type == "destination_busy" or (keeps_files and error.type == "commit_unknown")
                if not is_busy or attempt == BUSY_TRIES:
                    raise
                wait_for_rival(attempt)
        raise AssertionError("unreachable")

    def _keeps_files(self, change: DestinationChange) -> bool:
        """Whether an attach is spent lest a file be lost: not where the extension was asked to commit everything."""
        return change.target.lake.sqlite_file is None and self._limits.commit != "extension"

    @contextmanager
    def _lake_of(self, change: DestinationChange, *, keeps_files: bool) -> Iterator[tuple[OpenLake, bool]]:
        """The destination's lake, and whether it was open before."""
        creates = change.is_seed and not change.target.item.keeps
        was_open = not keeps_files and self._pool.has_open(change.target.lake)
        lend = self._destinations.for_one_commit if keeps_files else self._destinations.use
        with lend(change.target, create=creates) as lake:
            yield lake, was_open

    def _try(self, lake: OpenLake, change: DestinationChange, *, was_open: bool) -> Applied:
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
        change: DestinationChange,
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
                if not has_options(lake, change.target):
                    forget_bounds(con, lake, change.target.destination)
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
            lake.keep_files(con)
            attempt.commits()
            committing = True
            con.execute("COMMIT")
            self._after_commit(con, lake, change)
            return applied
        except fence.CursorMoved:
            roll_back(con)
            return self.answers.of(lake, change.target, change.table, change.time_of)
        except ViaduckError:
            roll_back(con)
            raise
        except duckdb.Error as error:
            roll_back(con)
            return self._failed(lake, change, token, error, applied if committing else None)

    def _after_commit(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange) -> None:
        """What this worker remembers of a table is of the columns that it had (H12). Bounds come last: where they can't
        be deleted now, the next apply attaches the lake, and deletes them."""
        if change.is_seed:
            set_options(con, lake, change.target)
        elif change.steps:
            self._direct.forget(change.target, refused=bool(change.left and change.counts.upserts))
            self._pool.evict_of(change.target.lake, read_only=False)
        elif change.pinned is not None and lake.users == 1:
            lake.layouts.committed(change.pinned + 1)
        if change.steps or change.is_seed or change.is_partitioned:
            try:
                forget_bounds(con, lake, change.target.destination)
            except (duckdb.Error, ViaduckError):
                self._pool.evict_of(change.target.lake, read_only=False)

    # -- inside the transaction ---------------------------------------------------------------------------------------

    def _move(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange, token: str) -> Applied:
        """One item of changes, or an advance: the cursor's compare-and-set is the first write."""
        item, destination = change.target.item, change.target.destination
        if change.through <= item.expected:
            raise fence.CursorMoved  # nowhere to move: a stamp of an empty range would claim that something was applied
        net = max(change.counts.touched, change.counts.upserts)
        fence.move_cursor(con, lake.alias, change.move(net))
        deleted, inserted, said = 0, 0, list[str]()
        if change.reading is not None:
            look = _look(con, lake, change)
            layout, change.is_partitioned = look.layout, bool(look.layout.partitioned)
            _require_carried(change, layout)
            require_kept(destination, look.altered, change.evolution, change.table.fields)
            have = table_schema.columns_there(con, lake.alias, destination)
            steps = evolve.pending_steps(con, destination, have, change.reading, change.evolution, look.altered)
            carried = terms.pending(lake, change, have, change.pinned or 0)
            table = table_schema.table_path(lake.alias, destination)
            left_out.keep_left_out(con, table, change.reading, layout, change.counts.harmless_keys)
            deleted = self._delete(con, lake, change, change.reading, layout)
            evolve.evolve(con, lake.alias, destination, steps)
            said += [*evolve.shown(steps), *terms.carry(con, lake.alias, destination, carried.before)]
            inserted = self._insert(con, lake, change, change.reading)
            said += [*terms.carry(con, lake.alias, destination, carried.after), *carried.left]
            change.reading.deliver()
        change.steps = said
        fence.stamp(con, lake.alias, change.stamp(item.after, token, deleted, inserted))
        counted = None if item.rows_applied is None else item.rows_applied + net
        return replace(_applied(change, deleted, inserted), rows_applied=counted)

    def _seed(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange, token: str) -> Applied:
        """Replace the table's content and begin a generation, in one transaction."""
        item, destination, reading = change.target.item, change.target.destination, change.reading
        assert reading is not None  # noqa: S101 - a seed always carries the rows that it found, if only none
        if item.keeps:
            return rewind(con, lake, change, token)
        seen = stored_cursor(con, lake, change.target)
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
            _require_carried(change, _look(con, lake, change).layout)
        require_encrypted(destination.layout, encrypted=is_encrypted(lake, destination.layout))
        keys = keys_of(destination.layout, reading.columns, reading.arrangement)
        columns = terms.columns_of_seed(change, reading)
        created = table_schema.prepare_seed(con, lake.alias, destination, columns, held, ours=seen is not None)
        carried = terms.of_seed(lake, change, is_new=created)
        said = terms.carry(con, lake.alias, destination, carried.before)
        laid_out = lay_out_seed(con, lake, change, keys, created=created)
        deleted = held or 0
        inserted = self._insert(con, lake, change, reading)
        said += [*terms.carry(con, lake.alias, destination, carried.after), *carried.left]
        change.steps = [each for each in said if not created or each.startswith(NOT_CARRIED)]
        before = NOT_SEEDED if seen is None else seen.position
        fence.stamp(con, lake.alias, change.stamp(before, token, deleted, inserted))
        return replace(_applied(change, deleted, inserted), rows_applied=rows, layout=laid_out)

    def _delete(
        self,
        con: duckdb.DuckDBPyConnection,
        lake: OpenLake,
        change: DestinationChange,
        reading: Reading,
        layout: FileLayout,
    ) -> int:
        """Delete the touched keys that exist. It costs less, and leaves fewer files, than a MERGE."""
        if not reading.keys or not change.counts.touched:
            return 0
        table = table_schema.table_path(lake.alias, change.target.destination)
        touched = carry_touched(con, reading, change.number, change.counts.touched)
        named = evolve.names_before(change.evolution, reading.keys)
        same = reading.same_keys("t", "x", layout, change.counts.harmless_keys, named)
        sql = f"DELETE FROM {table} AS t USING {touched} AS x WHERE {same}"
        deleted = int(con.execute(sql).fetchall()[0][0])
        if deleted and reading.only_inserts:
            self._refuse_second_row(con, lake, change, reading, table, touched)
        return deleted

    def _refuse_second_row(
        self,
        con: duckdb.DuckDBPyConnection,
        lake: OpenLake,
        change: DestinationChange,
        reading: Reading,
        table: str,
        touched: str,
    ) -> None:
        """A range that only inserted met a key that is there already: two live rows, so the key is none."""
        shown = " || ', ' || ".join(f"coalesce(CAST(k{i} AS VARCHAR), 'NULL')" for i in range(len(reading.keys)))
        roll_back(con)
        lake.begin(con)
        require_table(con, table)
        carry_touched(con, reading, change.number, change.counts.touched)
        named = evolve.names_before(change.evolution, reading.keys)
        same = reading.same_keys("t", "x", UNBELIEVED, change.counts.harmless_keys, named)
        doubled = f"SELECT {shown} FROM {touched} x WHERE EXISTS (SELECT 1 FROM {table} t WHERE {same}) LIMIT 1"
        found = con.execute(doubled).fetchall()
        raise key_not_unique(reading.keys, str(found[0][0]) if found else "?", 2, change.through)

    def _insert(
        self, con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange, reading: Reading
    ) -> int:
        """Insert the new rows; returns how many."""
        if not change.counts.upserts:
            return 0
        table = table_schema.table_path(lake.alias, change.target.destination)
        names = column_list(tuple(column.name for column in reading.columns))
        with rows_of(con, reading, change.number, change.counts.upserts) as rows:
            query = left_out.completed(con, reading, rows)
            inserted = int(con.execute(f"INSERT INTO {table} ({names}) {query}").fetchall()[0][0])
        require_all(inserted, change.counts.upserts, "rows")
        return inserted

    # -- what an error means -------------------------------------------------------------------------------------------

    def _failed(
        self, lake: OpenLake, change: DestinationChange, token: str, error: duckdb.Error, committing: Applied | None
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
            self.answers.look_at_files(lake, change.target.destination, None)
        if loses_attachment(error) or known.type in ("internal", "storage_failed"):
            self._pool.evict(lake)
        raise known

    def _resolve_unknown(self, change: DestinationChange, token: str, applied: Applied, error: ViaduckError) -> Applied:
        with self._destinations.use(change.target) as lake:
            snapshot = committed_snapshot(lake, token)
            if snapshot is None:
                raise DestinationError(
                    "commit_unknown", error.message, "no trace of the commit; it is tried again by itself"
                )
            self.answers.look_at_files(lake, change.target.destination, snapshot)
            return applied


def _applied(change: DestinationChange, deleted: int, inserted: int) -> Applied:
    through = change.through
    return Applied(
        Outcome.APPLIED, through, through, deleted, inserted, position_at=change.through_at,
        skipped=change.target.item.skipped, left=change.left,
    )  # fmt: skip


def wait_for_rival(attempt: int) -> None:
    time.sleep(BUSY_WAIT_S * attempt * (1 + random.random()))  # noqa: S311 - spreads rivals, guards nothing


def _look(con: duckdb.DuckDBPyConnection, lake: OpenLake, change: DestinationChange) -> TableLook:
    """What the destination's table is in the snapshot that the transaction has pinned."""
    change.pinned, look = table_look(con, lake, change.target.destination)
    return look


def _require_carried(change: DestinationChange, layout: FileLayout) -> None:
    """Raises ``value_not_carried`` for a text that a table so partitioned can't hold."""
    if change.reading is not None:
        require_written(change, change.reading, layout.partitioned)
