"""One destination, one commit by DuckLake's specification: look, decide, write files, commit. No lake is attached.

What a commit rests on is part of its condition, so it needs no deadline: a process that was frozen between the steps
finds another newest snapshot. Nothing of its own is deleted that might be committed (H7).
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb
import psycopg

from services.applier.apply import fence
from services.applier.apply.carry import few_rows_of, require_all, rows_of, touched_of
from services.applier.apply.change import Applied, Change
from services.applier.apply.decide import Cursor, Decision, decide
from services.applier.apply.reading import Reading
from services.applier.apply.table_options import tables_of
from services.applier.model.task import Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, Error
from shared.contracts.messages import CommitPath, Outcome
from shared.lake.attach import is_beside
from shared.lake.catalog_query import Question
from shared.lake.cursor import committed_at
from shared.lake.direct import files, paths, positions, store
from shared.lake.direct.batch import Commit, NewDataFile, Stamp, Written, commit_of
from shared.lake.direct.catalogs import NotCommitted, RivalCommitted
from shared.lake.direct.eligibility import Reason, state_refusal, statistics_refusal, structure_refusal
from shared.lake.direct.lakes import DirectLake, DirectLakes, KeysInUse, TableKey
from shared.lake.direct.state import State, parse_state, state_question
from shared.lake.direct.structure import Structure, parse_structure, structure_question
from shared.lake.failure import classify, invalidates_instance, misses_file
from shared.lake.pruning import PLAIN, may_prune

RIVAL_TRIES = 8
RIVAL_WAIT_S = 0.01

NEVER_WRITTEN = (TypeError, ValueError, LookupError)
"""What comes of values in a catalog that DuckLake never writes, such as a NULL in a cursor."""

LOOK_TRIES = 3
"""Tables of inlined rows come and go without a new schema version; each such look is repeated."""


class Declined(Error):
    """The extension has to commit, or to answer."""

    def __init__(self, reason: Reason | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Look:
    """What a commit rests on. ``folder`` is the table's, with a slash at its end."""

    structure: Structure
    state: State
    data_path: str
    folder: str
    files: tuple[positions.OpenFile, ...]


class DirectApplier:
    """Commits changes and advances directly; used by many threads at once."""

    def __init__(self, lakes: DirectLakes, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``deadline_s``: older files are not committed any more, since an owner may take them for orphans."""
        self._lakes = lakes
        self._deadline_s = deadline_s
        self._clock = clock
        self._distrusted = set[str]()
        """Lakes whose files have cost an instance: the extension reads them, in an instance of their own."""

    def apply(self, change: Change) -> Applied | Reason | None:
        """Bring one change about; or say why the extension has to, or None where there is nothing to commit.

        Raises a ``ViaduckError`` with the reason when the destination can't go on.
        """
        if self._distrusted and str(change.target.lake) in self._distrusted:
            return Reason.DAMAGED_FILE
        for attempt in range(1, RIVAL_TRIES + 1):
            try:
                return self._try(change)
            except Declined as declined:
                return declined.reason
            except RivalCommitted:
                time.sleep(RIVAL_WAIT_S * attempt * (1 + random.random()))  # noqa: S311 - spreads rivals, guards nothing
        return Reason.RIVALS

    def cursor(self, target: Target) -> Cursor | None:
        """The stored cursor, in one round trip; None where the extension has to be asked for it."""
        try:
            with self._lakes.use(target.lake) as lake:
                return _cursor_of(self._look(lake, target).state, target)
        except (Declined, RivalCommitted, FileNotFoundError, *NEVER_WRITTEN):
            return None
        except (duckdb.Error, psycopg.Error, OSError) as error:
            raise classify(error, f"reading the cursor of {target.destination.key}") from None

    def close(self) -> None:
        self._lakes.close()

    def _try(self, change: Change) -> Applied:
        """A file that is missing may just have been cleaned up: the extension looks again. TLA: ``MissFile``."""
        where = f"{change.target.item.kind} of {change.target.destination.key} through {change.through}"
        try:
            with self._lakes.use(change.target.lake) as lake:
                return self._commit(lake, change)
        except NotCommitted as refused:
            if isinstance(refused, RivalCommitted):
                raise
            raise classify(refused.__cause__ or refused, where) from None
        except FileNotFoundError:
            raise Declined(Reason.FIRST_COMMIT) from None
        except KeysInUse:
            raise Declined(Reason.OTHER_KEYS) from None
        except (duckdb.Error, psycopg.Error, OSError) as error:
            if isinstance(error, duckdb.Error) and invalidates_instance(error):
                self._distrusted.add(str(change.target.lake))
            if isinstance(error, duckdb.Error) and (misses_file(error) or invalidates_instance(error)):
                raise Declined(Reason.DAMAGED_FILE) from None
            raise classify(error, where) from None

    # -- look ---------------------------------------------------------------------------------------------------------

    def _commit(self, lake: DirectLake, change: Change) -> Applied:
        try:
            look = self._look(lake, change.target, change)
            cursor = _cursor_of(look.state, change.target)
        except NEVER_WRITTEN:
            raise Declined(Reason.UNREADABLE_CATALOG) from None
        if not _stands(cursor, change):
            raise Declined(None)  # the extension's path says what such a cursor means for the item
        began_s = self._clock()
        with lake.instance.keys(lake.lake, look.data_path):
            written = _write(lake, change, look)
            if self._clock() - began_s > self._deadline_s:
                store.remove(lake.lake, look.folder, written.names)
                raise DestinationError(
                    "deadline_exceeded",
                    f"writing the files of a commit took longer than {self._deadline_s:g} s, and it was given up",
                    "the destination's store is slow; raise applier.deadline_seconds if it stays so. It is tried again",
                )
            return self._send(lake, change, look, cursor, written)

    def _look(self, lake: DirectLake, target: Target, change: Change | None = None) -> Look:
        """``change`` is what is to be committed on it, if anything. TLA: ``LookDirect``."""
        cursor, data = tables_of(target.destination)
        key = (lake.lake, data, cursor)
        reading = None if change is None else change.reading
        columns = None if reading is None else [(each.name, each.type) for each in reading.columns]
        for _ in range(LOOK_TRIES):
            known = self._lakes.structure(key)
            structure = known or self._structure(lake, key)
            refused = structure_refusal(structure, columns)
            if refused is not None and known is not None:
                self._lakes.forget(key)  # what is remembered may be what the table was before the extension altered it
                continue
            _decline(refused)
            state = _state(lake, structure, () if change is None else _keys(structure, change))
            if state is not None and _is_of(structure, state):
                if state.catalog_tables == structure.catalog_tables:
                    return _looked(lake, structure, state)
                self._lakes.remember(key, replace(structure, optional=_optional(structure, state)))
            else:
                self._lakes.forget(key)
        raise RivalCommitted("the catalog's own tables change while they are looked at")

    def _structure(self, lake: DirectLake, key: TableKey) -> Structure:
        question = structure_question(lake.catalog.dialect, lake.catalog.prefix, key[1], key[2])
        said = _answer_of(lake, question)
        structure = None if said is None else parse_structure(said)
        if structure is None:
            raise Declined(Reason.FIRST_COMMIT)
        structure = replace(structure, declared=files.duckdb_types(lake.con, structure.fields))
        self._lakes.remember(key, structure)
        return structure

    # -- commit -------------------------------------------------------------------------------------------------------

    def _send(self, lake: DirectLake, change: Change, look: Look, cursor: Cursor, written: Written) -> Applied:
        """TLA: ``CommitDirect``, ``AcknowledgeDirect``, ``RefuseDirect``."""
        token, now = uuid.uuid4().hex, datetime.now(UTC)
        net = max(change.counts.touched, change.counts.upserts)
        inserted = 0 if written.data is None else written.data.records
        stamped = fence.Stamp(
            change.target.item, change.target.item.kind.value, change.target.item.after, change.through, token,
            written.deleted_rows, inserted, CommitPath.DIRECT,
        )  # fmt: skip
        commit = commit_of(
            lake.catalog.dialect,
            lake.catalog.prefix,
            look.structure,
            look.state,
            written,
            fence.row_of(change.move(net), cursor.rows_applied, now),
            Stamp("viaduck", stamped.message(), stamped.extra_info()),
            now,
        )
        try:
            lake.catalog.commit(commit)
        except NotCommitted:
            store.remove(lake.lake, look.folder, written.names)
            raise
        except (duckdb.Error, psycopg.Error, OSError) as error:
            self._resolve(lake, look, commit, token, written, error)
        counted = None if change.target.item.rows_applied is None else change.target.item.rows_applied + net
        return Applied(
            Outcome.APPLIED, change.through, change.through, written.deleted_rows, inserted, rows_applied=counted,
            commit=CommitPath.DIRECT,
        )  # fmt: skip

    def _resolve(
        self, lake: DirectLake, look: Look, commit: Commit, token: str, written: Written, error: Exception
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
        store.remove(lake.lake, look.folder, written.names)
        raise RivalCommitted("another commit has the number of the snapshot") from None


# -- what was seen ----------------------------------------------------------------------------------------------------


def _decline(reason: Reason | None) -> None:
    if reason is not None:
        raise Declined(reason)


def _keys(structure: Structure, change: Change) -> tuple[positions.Key, ...]:
    """The key columns by which touched rows are looked for. A table's own bounds are believed as those of any lake."""
    reading = change.reading
    if reading is None or not reading.keys or not change.counts.touched:
        return ()
    fields = {field.name.lower(): field for field in structure.fields}
    wanted = [fields[name.lower()] for name in reading.keys]
    _decline(Reason.KEY_DEFAULT if any(field.default is not None for field in wanted) else None)
    return tuple(
        positions.Key(field, may_prune(field.declared, PLAIN, harmless=harmless) and not reading.null_keys)
        for field, harmless in zip(wanted, change.counts.harmless_keys, strict=True)
    )


def _state(lake: DirectLake, structure: Structure, keys: Sequence[positions.Key]) -> State | None:
    """None where the catalog no longer has the tables that the structure names."""
    asked = [key.field.id for key in keys]
    question = state_question(lake.catalog.dialect, lake.catalog.prefix, structure, asked)
    said = _answer_of(lake, question)
    return None if said is None else parse_state(said, lake.catalog.dialect, structure)


def _answer_of(lake: DirectLake, question: Question) -> str | None:
    """What the catalog says; None where it does not have the tables that it is asked of."""
    try:
        return lake.catalog.ask(question)
    except psycopg.errors.UndefinedTable:
        return None
    except duckdb.Error as error:
        if "no such table" in str(error):
            return None
        raise


def _is_of(structure: Structure, state: State) -> bool:
    """Whether the table still has the structure that the worker remembers of it."""
    return state.snapshot.schema_version == structure.schema_version and state.fields == structure.columns


def _optional(structure: Structure, state: State) -> frozenset[str]:
    return state.catalog_tables & {structure.inlined_deletes, structure.cursor_inlined_deletes}


def _looked(lake: DirectLake, structure: Structure, state: State) -> Look:
    """Raises ``Declined`` where the extension has to commit."""
    _decline(state_refusal(state))
    _decline(statistics_refusal(structure, state))
    data_path = _data_path(lake.lake, state)
    folder = paths.table_folder(data_path, structure.folder)
    _decline(Reason.FOREIGN_FILES if folder is None else None)
    assert folder is not None  # noqa: S101 - declined
    opened = []
    for file in state.files:
        path = paths.resolved(folder, file.path, data_path)
        deletes = [paths.resolved(folder, each.path, data_path) for each in file.deletes]
        _decline(Reason.FOREIGN_FILES if path is None or None in deletes else None)
        opened.append(positions.OpenFile(file, str(path), deletes[0] if deletes else None))
    return Look(structure, state, data_path, folder, tuple(opened))


def _data_path(lake: ResolvedLake, state: State) -> str:
    """The lake's data path, if the catalog and the declaration of the lake agree about it."""
    said = state.option("data_path") or ""
    known = lake.data_path is None or paths.root(lake.data_path) == paths.root(said)
    sure = lake.data_path is not None or not lake.untrusted or is_beside(said, lake)
    _decline(None if said and known and sure and ("://" in said or said.startswith("/")) else Reason.DATA_PATH)
    return paths.root(said)


def _cursor_of(state: State, target: Target) -> Cursor:
    row = state.cursors[0]
    said = row.values
    stored = Cursor(
        generation=said["generation"],
        position=said["position"],
        source_lake=said["source_lake"],
        table_id=said["source_table_id"],
        table_uuid=said["source_table_uuid"],
        routing_value=said["routing_value"],
        item=said["item"],
        rows_applied=said["rows_applied"],
        snapshot=row.begin_snapshot,
    )
    return fence.intact(stored, target.destination)


def _stands(cursor: Cursor, change: Change) -> bool:
    """Whether the cursor is where the item begins, in the same history of the same table, for the same tenant."""
    move = change.move(0)
    then = committed_at(cursor.source_lake)
    return (
        change.through > change.target.item.expected
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


# -- what is written --------------------------------------------------------------------------------------------------


def _write(lake: DirectLake, change: Change, look: Look) -> Written:
    """Write delete files, then a data file; where that one fails, the delete files are taken away again. What an error
    leaves of the delete files themselves is an orphan, as after a crash. TLA: ``WriteFiles``."""
    reading = change.reading
    if reading is None:
        return Written()
    files.make_folder(look.folder)
    written = _write_deletes(lake, change, reading, look)
    if not change.counts.upserts:
        return written
    try:
        with rows_of(lake.con, reading, change.number, change.counts.upserts) as rows:
            data = files.write_data(lake.con, look.folder, rows, look.structure.fields)
        written = replace(written, data=data)
        require_all(data.records, change.counts.upserts, "rows")
        _remember(lake, change, reading, look, data)
    except BaseException:
        store.remove(lake.lake, look.folder, written.names)
        raise
    return written


def _write_deletes(lake: DirectLake, change: Change, reading: Reading, look: Look) -> Written:
    keys = _keys(look.structure, change)
    if not keys or not look.files:
        return Written()
    with touched_of(lake.con, reading, change.number, change.counts.touched) as touched:
        found = positions.find_positions(look.files, touched, keys, lake.known, nulls=reading.null_keys)
    if found and reading.only_inserts:
        raise Declined(Reason.DOUBLED_KEY)
    where = files.TableFiles(look.folder, look.data_path)
    return files.write_deletes(lake.con, where, look.files, found, look.state.snapshot.id + 1, lake.known)


def _remember(lake: DirectLake, change: Change, reading: Reading, look: Look, data: NewDataFile) -> None:
    """The next apply of the worker need not read the keys of this one's file."""
    rows = few_rows_of(reading, change.number, change.counts.upserts)
    if rows is not None and reading.keys:
        fields = {field.name.lower(): field for field in look.structure.fields}
        wanted = [fields[name.lower()] for name in reading.keys]
        positions.keep_keys(rows, look.folder + data.name, wanted, lake.known)
