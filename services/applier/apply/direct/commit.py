"""One destination, one commit by DuckLake's specification: look, decide, write files, commit. No lake is attached.

What a commit rests on is part of its condition, so it needs no deadline: a process that was frozen between the steps
finds another newest snapshot. Nothing of its own is deleted that might be committed (H7).
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import duckdb
import psycopg

from services.applier.apply.columns import terms
from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor, Decision, decide
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.destination.foreign_keys import KeysOfRange
from services.applier.apply.destination.table_options import CURSOR_INLINED_ROWS
from services.applier.apply.direct import columns as direct_columns
from services.applier.apply.direct import files as direct_files
from services.applier.apply.direct import look as direct_look
from services.applier.apply.direct import seed as direct_seed
from services.applier.apply.direct.foreign_keys import has_none
from services.applier.apply.direct.look import CommitBasis, Declined, cursor_of
from services.applier.apply.direct.seed import NoCatalog, Site
from services.applier.apply.maintenance.table_wear import wear_of
from services.applier.apply.source.reading import Reading
from services.applier.model.task import Limits, Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.contracts.messages import CommitPath, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.reader import Column
from shared.lake.columns.owners import require_kept
from shared.lake.connection.query import Question
from shared.lake.cursor import committed_at
from shared.lake.direct import files, store
from shared.lake.direct.batch import CommitBatch, CommitContext, NextCommit
from shared.lake.direct.catalogs import ALONE_S, NotCommitted, RivalCommitted
from shared.lake.direct.columns import Alteration
from shared.lake.direct.eligibility import ExtensionReason
from shared.lake.direct.first_commit import FirstCommit
from shared.lake.direct.lakes import DirectLake, DirectLakes, KeysInUse, TableKey
from shared.lake.direct.rows import CommitMessage
from shared.lake.direct.structure import Structure
from shared.lake.direct.written import Written
from shared.lake.failure import classify, invalidates_instance, misses_file

T = TypeVar("T")

RIVAL_TRIES = 8
RIVAL_WAIT_S = 0.01

OPEN_TRIES = 5
"""After so many lost ones, other writers are kept out from the look to the commit."""

NEVER_WRITTEN = (TypeError, ValueError, LookupError)
"""What comes of values in a catalog that DuckLake never writes, such as a NULL in a cursor."""


class DirectApplier:
    """Commits changes and advances directly; used by many threads at once."""

    def __init__(self, lakes: DirectLakes, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        """``limits``: files that are older than a deadline are not committed any more: an owner may take them for
        orphans."""
        self._lakes = lakes
        self._limits = limits
        self._clock = clock
        self._distrusted = set[str]()
        """Lakes whose files have cost an instance: the extension reads them, in an instance of their own."""
        self._refusing = set[TableKey]()
        """Tables to which DuckLake has refused the source's NOT NULL: it is not tried with each apply."""

    def apply(self, change: DestinationChange) -> Applied | ExtensionReason | None:
        """Bring one change about; or say why the extension has to, or None where there is nothing to commit.

        Raises a ``ViaduckError`` with the reason when the destination can't go on.
        """
        if (refused := _refusal(change)) is not None:
            return refused
        if self._distrusted and str(change.target.lake) in self._distrusted:
            return ExtensionReason.DAMAGED_FILE
        alone = False
        for attempt in range(1, RIVAL_TRIES + 1):
            began_s = self._clock()
            try:
                return self._try(change, alone=alone)
            except NoCatalog as declined:
                if attempt > 1 or not self._lakes.create(change.target.lake):
                    return declined.reason
            except Declined as declined:
                return declined.reason
            except RivalCommitted:
                alone = attempt >= OPEN_TRIES and self._clock() - began_s < ALONE_S / 2
                time.sleep(RIVAL_WAIT_S * attempt * (1 + random.random()))  # noqa: S311 - spreads rivals, guards nothing
        return ExtensionReason.RIVALS

    def cursor(self, target: Target) -> Cursor | None:
        """The stored cursor, in one round trip; None where the extension has to be asked for it."""

        def stored(lake: DirectLake) -> Cursor:
            return cursor_of(direct_look.look_at(self._lakes, lake, target).state, target)

        return self._asked(target, "the cursor", stored)

    def columns(self, target: Target) -> tuple[Column, ...] | None:
        """The columns of the target's table, in one round trip; None where the extension has to be asked for them."""
        return self._asked(target, "the columns", lambda lake: direct_look.columns_of(self._lakes, lake, target))

    def has_none(self, target: Target, keys: KeysOfRange) -> bool:
        """Whether the target's table surely has no row of a key that went elsewhere; else the extension has to look."""
        if self._distrusted and str(target.lake) in self._distrusted:
            return False
        found = self._asked(target, "the keys", lambda lake: has_none(self._lakes, lake, target, keys))
        return found is True

    def _asked(self, target: Target, what: str, ask: Callable[[DirectLake], T]) -> T | None:
        """None where the extension has to be asked, also about a file that is missing, or that costs an instance."""
        try:
            with self._lakes.use(target.lake) as lake:
                return ask(lake)
        except (Declined, RivalCommitted, KeysInUse, FileNotFoundError, *NEVER_WRITTEN):
            return None
        except (duckdb.Error, psycopg.Error, OSError) as error:
            if self._is_of_a_file(target.lake, error):
                return None
            raise classify(error, f"reading {what} of {target.destination.key}") from None

    def _is_of_a_file(self, lake: ResolvedLake, error: Exception) -> bool:
        """Whether an error is that a file can't be read. A lake that has cost an instance is distrusted."""
        if not isinstance(error, duckdb.Error):
            return False
        if invalidates_instance(error):
            self._distrusted.add(str(lake))
            return True
        return misses_file(error)

    def knows(self, target: Target) -> bool:
        """Whether the target's table is remembered."""
        return self._lakes.structure(direct_look.key_of(target)) is not None

    def forget(self, target: Target, *, refused: bool = False) -> None:
        """What is remembered of the target's table, whose columns have become others, unless that was ``refused``."""
        self._lakes.forget(direct_look.key_of(target))
        if refused:
            self._refusing.add(direct_look.key_of(target))

    def close(self) -> None:
        self._lakes.close()

    def _try(self, change: DestinationChange, *, alone: bool) -> Applied:
        """A file that is missing may just have been cleaned up: the extension looks again. TLA: ``MissFile``."""
        where = f"{change.target.item.kind} of {change.target.destination.key} through {change.through}"
        try:
            with self._lakes.use(change.target.lake) as lake, lake.catalog.alone() if alone else nullcontext():
                return self._seed(lake, change) if change.is_seed else self._commit(lake, change)
        except NotCommitted as refused:
            if isinstance(refused, RivalCommitted):
                raise
            raise classify(refused.__cause__ or refused, where) from None
        except FileNotFoundError:
            raise Declined(ExtensionReason.FIRST_COMMIT) from None
        except KeysInUse:
            raise Declined(ExtensionReason.OTHER_KEYS) from None
        except (duckdb.Error, psycopg.Error, OSError) as error:
            if self._is_of_a_file(change.target.lake, error):
                raise Declined(ExtensionReason.DAMAGED_FILE) from None
            raise classify(error, where) from None

    # -- look ---------------------------------------------------------------------------------------------------------

    def _commit(self, lake: DirectLake, change: DestinationChange) -> Applied:
        try:
            look = direct_look.look_at(self._lakes, lake, change.target, change)
            cursor = cursor_of(look.state, change.target)
        except NEVER_WRITTEN:
            raise Declined(ExtensionReason.UNREADABLE_CATALOG) from None
        if self._lacks(change, look.structure):
            raise Declined(ExtensionReason.SCHEMA_CHANGE)
        if not _stands(cursor, change):
            raise Declined(None)  # the extension's path says what such a cursor means for the item
        require_kept(change.target.destination, look.structure.altered, change.evolution, change.table.fields)
        following = direct_columns.follow(lake, change, look)
        change.steps = following.said
        with lake.instance.keys(lake.lake, look.data_path):
            began_s = self._clock()
            written = direct_files.write(lake, change, look, following.structure)
            _deliver(lake, change, look.folder, written)
            self._require_in_time(lake, change, look.folder, written, began_s)
            done = self._send(lake, change, look, cursor, written, following.alteration)
        if following.alteration is not None or look.structure.altered is not None:
            self._lakes.remember(direct_look.key_of(change.target), replace(following.structure, altered=None))
        return done

    def _lacks(self, change: DestinationChange, structure: Structure) -> bool:
        """Whether the table is to have NOT NULL that DuckLake has not refused yet."""
        key = direct_look.key_of(change.target)
        return not change.carries and key not in self._refusing and terms.lacks(change, structure.fields)

    def _seed(self, lake: DirectLake, change: DestinationChange) -> Applied:
        reading = change.reading
        assert reading is not None  # noqa: S101 - a seed always carries the rows that it found, if only none
        direct_seed.require_plain(change, reading)
        try:
            found = direct_seed.site_of(lake, change, reading) or self._life_before(lake, change)
        except NEVER_WRITTEN:
            raise Declined(ExtensionReason.UNREADABLE_CATALOG) from None
        if isinstance(found, Site):
            done = self._seed_first(lake, change, reading, found)
        else:
            done = self._seed_over(lake, change, *found)
        return replace(done, layout=change.target.destination.layout)

    def _life_before(self, lake: DirectLake, change: DestinationChange) -> tuple[CommitBasis, Cursor]:
        try:
            look = direct_look.look_at(self._lakes, lake, change.target, change)
        except Declined as declined:
            absent = (
                declined.reason is ExtensionReason.FIRST_COMMIT
            )  # one of the two tables, or what has the name is none
            raise Declined(ExtensionReason.TABLE_EXISTS if absent else declined.reason) from None
        direct_seed.require_limit(look.state.options)
        change.steps = direct_seed.require_terms(change, look.structure)
        return look, cursor_of(look.state, change.target)

    def _seed_over(self, lake: DirectLake, change: DestinationChange, look: CommitBasis, cursor: Cursor) -> Applied:
        """Begin another life in the table of the one before, of which no file is read: they may be gone (H7)."""
        if decide(cursor, change.target.item) is not Decision.APPLY:
            raise Declined(None)
        with lake.instance.keys(lake.lake, look.data_path):
            began_s = self._clock()
            written = direct_files.write_over(lake, change, look)
            self._require_in_time(lake, change, look.folder, written, began_s)
            return self._send(lake, change, look, cursor, written)

    def _seed_first(self, lake: DirectLake, change: DestinationChange, reading: Reading, site: Site) -> Applied:
        """Make the table, the cursor and the rows of a destination's first life at once. TLA: ``CommitDirect``."""
        structure, folder = site.tables.structure, site.folder
        with lake.instance.keys(lake.lake, site.data_path):
            began_s = self._clock()
            files.make_folder(folder)
            written = Written(direct_files.write_rows(lake, change, reading, structure, folder))
            change.steps = site.left
            self._require_in_time(lake, change, folder, written, began_s)
            token, rows, now = uuid.uuid4().hex, change.counts.upserts, datetime.now(UTC)
            stamp, row = _stamp(change, token, NOT_SEEDED, written), fence.row_of(change.move(rows), 0, now)
            context = CommitContext(lake.catalog.dialect, lake.catalog.prefix, row, stamp, now)
            first = FirstCommit(context, site.seen, site.tables, written, CURSOR_INLINED_ROWS)
            self._bring_about(lake, folder, first.batch(), token, written)
        self._lakes.remember(direct_look.key_of(change.target), structure)
        return replace(_applied(change, written), rows_applied=rows)

    def _require_in_time(
        self, lake: DirectLake, change: DestinationChange, folder: str, written: Written, began_s: float
    ) -> None:
        """Raises ``deadline_exceeded``, and takes the files away, where an owner may take them for orphans by now."""
        deadline_s = self._limits.deadline_of(change.target.item.kind)
        if self._clock() - began_s <= deadline_s:
            return
        store.remove(lake.lake, folder, written.names)
        raise DestinationError(
            "deadline_exceeded",
            f"writing the files of a commit took longer than {deadline_s:g} s, and it was given up",
            f"the destination's store is slow; raise applier.{'seed_' if change.is_seed else ''}deadline_seconds if it"
            " stays so. It is tried again",
        )

    # -- commit -------------------------------------------------------------------------------------------------------

    def _send(
        self,
        lake: DirectLake,
        change: DestinationChange,
        look: CommitBasis,
        cursor: Cursor,
        written: Written,
        alteration: Alteration | None = None,
    ) -> Applied:
        """TLA: ``CommitDirect``, ``AcknowledgeDirect``, ``RefuseDirect``."""
        token, now = uuid.uuid4().hex, datetime.now(UTC)
        after, rows, net = change.target.item.after, cursor.rows_applied, change.counts.upserts
        if change.is_seed:  # another life, whose rows are counted from 0
            after, rows = cursor.position, 0
        else:
            net = max(change.counts.touched, net)
        stamp, row = _stamp(change, token, after, written), fence.row_of(change.move(net), rows, now)
        context = CommitContext(lake.catalog.dialect, lake.catalog.prefix, row, stamp, now)
        commit = NextCommit(context, look.structure, look.state, written, alteration).batch()
        self._bring_about(lake, look.folder, commit, token, written)
        told = 0 if change.is_seed else change.target.item.rows_applied
        counted = None if told is None else told + net
        return replace(_applied(change, written), rows_applied=counted, wear=wear_of(look.state.files, written))

    def _bring_about(self, lake: DirectLake, folder: str, commit: CommitBatch, token: str, written: Written) -> None:
        """Raises ``NotCommitted``, and takes the files away, where it is not brought about."""
        try:
            lake.catalog.commit(commit)
        except NotCommitted:
            store.remove(lake.lake, folder, written.names)
            raise
        except (duckdb.Error, psycopg.Error, OSError) as error:
            self._resolve(lake, folder, commit, token, written, error)

    def _resolve(
        self, lake: DirectLake, folder: str, commit: CommitBatch, token: str, written: Written, error: Exception
    ) -> None:
        """Find out what became of a batch whose acknowledgement is lost. Returns where it was brought about.

        Raises ``RivalCommitted`` where the number of its snapshot is another commit's, so that it can't come any more;
        else ``commit_unknown``, and its files stay. TLA: ``ResolveDirect``.
        """
        with self._lakes.use(lake.lake) as anew:
            newest, said = _stamp_at(anew, commit.snapshot)
        if said is not None and token in said:
            return
        if said is None or newest < commit.snapshot:
            known = classify(error, "committing")
            raise DestinationError(
                "commit_unknown", known.message, "no trace of the commit; it is tried again by itself"
            ) from None
        store.remove(lake.lake, folder, written.names)
        raise RivalCommitted("another commit has the number of the snapshot") from None


def _refusal(change: DestinationChange) -> ExtensionReason | None:
    """Why the extension has to bring a change about, whatever its table is."""
    return ExtensionReason.LEFT_OUT if change.reading is not None and change.reading.left_out is not None else None


def _deliver(lake: DirectLake, change: DestinationChange, folder: str, written: Written) -> None:
    """Bring outside what has to be there before the batch is sent; where that can't be, the files are taken away."""
    if change.reading is None:
        return
    try:
        change.reading.deliver()
    except BaseException:
        store.remove(lake.lake, folder, written.names)
        raise


def _stamp(change: DestinationChange, token: str, after: int, written: Written) -> CommitMessage:
    inserted = 0 if written.data is None else written.data.records
    said = change.stamp(after, token, written.deleted_rows, inserted, CommitPath.DIRECT)
    return CommitMessage("viaduck", said.message(), said.extra_info())


def _applied(change: DestinationChange, written: Written) -> Applied:
    inserted = 0 if written.data is None else written.data.records
    return Applied(
        Outcome.APPLIED, change.through, change.through, written.deleted_rows, inserted, position_at=change.through_at,
        commit=CommitPath.DIRECT, left=change.left, skipped=change.target.item.skipped,
    )  # fmt: skip


def _stands(cursor: Cursor, change: DestinationChange) -> bool:
    """Whether the cursor is where the item begins, in the same history of the same table, for the same tenant.

    Of a source that spells positions, by the spelling too: two vectors may have one sum.
    """
    move = change.move(0)
    then = committed_at(cursor.source_lake)
    return (
        change.through > change.target.item.expected
        and bool(change.through_at) is change.target.is_spelled
        and decide(cursor, change.target.item) is Decision.APPLY
        and cursor.table_uuid == move.source.table_uuid
        and cursor.routing_value == change.target.destination.routing_value
        and (then is None or move.expected_at is None or then == move.expected_at)
    )


def _stamp_at(lake: DirectLake, snapshot: int) -> tuple[int, str | None]:
    """The newest snapshot, and what the commit of ``snapshot`` says of itself; None where it is not retained."""
    question = Question(
        "SELECT {array}((SELECT max(snapshot_id) FROM {}ducklake_snapshot),"
        " (SELECT coalesce(commit_extra_info, '') FROM {}ducklake_snapshot_changes WHERE snapshot_id = :snapshot)"
        ") AS found",
        {"": lake.catalog.prefix, **lake.catalog.dialect.functions},
        {"snapshot": snapshot},
    )
    newest, said = json.loads(lake.catalog.ask(question))
    return int(newest), said
