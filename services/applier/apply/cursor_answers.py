"""What a destination's stored cursor means for an item, and whether the files of the commit that moved it are there."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import duckdb
import pyarrow as pa

from services.applier.apply.cursor.decide import Cursor, Decision, decide
from services.applier.apply.cursor.in_doubt import committed_files, require_files
from services.applier.apply.destination.change import Applied
from services.applier.apply.destination.foreign_keys import KeysOfRange, foreign_keys
from services.applier.apply.destination.lake_state import TimeOf, dropped_generation_in, require_same, stored_cursor
from services.applier.apply.destination.lakes import DestinationLakes
from services.applier.apply.destination.table_options import has_options, set_options, tables_of
from services.applier.apply.destination.table_schema import columns_of, table_path
from services.applier.apply.direct.commit import DirectApplier
from services.applier.model.task import Target
from shared.contracts.errors import DestinationError
from shared.contracts.messages import CommitPath, Destination, ItemKind, Outcome, Skipped
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.attached.pool import OpenLake
from shared.lake.catalog.reader import CatalogReader, Column, TableInfo
from shared.lake.checks.foreign_files import require_no_code, require_own_files
from shared.lake.checks.table_mismatch import table_gone
from shared.lake.connection.statements import SharedPostgres
from shared.lake.failure import LakeAbsent
from shared.lake.stamp import StampRead, read_stamp
from shared.lake.table import require_table

unknown: TimeOf = dict[int, datetime]().get


class CursorAnswers:
    """Reads cursors by a direct look where that suffices (``direct``, if any), else in the attached lake."""

    def __init__(self, lakes: DestinationLakes, direct: DirectApplier | None) -> None:
        self._lakes = lakes
        self._direct = direct

    def cursor(self, target: Target) -> Cursor | None:
        """The stored cursor; None where there is none, for example because the lake does not exist yet."""
        if self._direct is not None and (seen := self._direct.cursor(target)) is not None:
            return seen
        try:
            with self._lakes.use(target, sure=False) as lake:
                return self._stored(lake, target)
        except LakeAbsent:
            return None

    def probe(self, target: Target, source: TableInfo | None = None, time_of: TimeOf = unknown) -> Applied:
        """Answer from the cursor, without writing anything and without making a lake that is not there.

        Raises ``source_recreated`` where the cursor speaks of another table than ``source``, and ``source_moved`` where
        it speaks of another history of it. TLA: ``TakeProbe``.
        """
        known = self._answer_directly(target, source, time_of)
        if known is not None:
            return known
        try:
            with self._lakes.use(target, sure=False) as lake:
                return self.of(lake, target, source, time_of)
        except LakeAbsent:
            return Applied(Outcome.ALREADY_APPLIED, position=NOT_SEEDED)

    def of(self, lake: OpenLake, target: Target, source: TableInfo | None = None, time_of: TimeOf = unknown) -> Applied:
        """Read the cursor and say what it means for the item. TLA: ``DecideAnew``, ``OfCursor``, ``AnswerVector``,
        ``AnswerColumns``."""
        cursor = self._stored(lake, target)
        if cursor is None:
            return self._of_none(lake, target)
        answer = _judged(cursor, target, source, time_of)
        if answer is None:
            raise _moved(target)
        if answer.outcome is not Outcome.FENCED:
            stamp = self._require_last_files(lake, target.destination, cursor)
            answer = _with_skipped(answer, stamp)
        if target.item.kind is ItemKind.SEED and answer.outcome is Outcome.ALREADY_APPLIED:
            self._set_options_again(lake, target)
        return answer

    def columns(self, target: Target) -> tuple[Column, ...]:
        """The columns that the destination's table has now. Raises ``table_mismatch`` where it is gone."""
        if self._direct is not None and (known := self._direct.columns(target)) is not None:
            return known
        destination = target.destination

        def described(con: duckdb.DuckDBPyConnection, alias: str) -> tuple[Column, ...] | None:
            table = table_path(alias, destination)
            require_table(con, table)
            return columns_of(con, table)

        with self._lakes.use(target) as lake:
            found = self._lakes.read(lake, "reading the columns", lambda con: described(con, lake.alias))
        if found is None:
            raise table_gone(destination)
        return found

    def foreign_keys(self, target: Target, keys: KeysOfRange) -> pa.Table:
        """The keys that end elsewhere than at the target, of which its table has rows (``apply.foreign_keys``)."""
        if self._direct is not None and self._direct.has_none(target, keys):
            return keys.elsewhere(target.destination.routing_value).slice(0, 0)
        with self._lakes.use(target) as lake:
            doing = "looking for keys of other destinations"
            return self._lakes.read(lake, doing, lambda con: foreign_keys(con, lake, target, keys))

    def look_at_files(self, lake: OpenLake, destination: Destination, snapshot: int | None) -> None:
        """Raises ``destination_damaged`` where a file of a snapshot, or (None) of the table, is gone (H7)."""
        doing = "looking for committed files"
        files = self._lakes.read(lake, doing, lambda con: committed_files(con, lake, destination, snapshot))
        self._lakes.guarded(lake, doing, lambda con: require_files(con, destination, files))

    def _stored(self, lake: OpenLake, target: Target) -> Cursor | None:
        doing = "reading the cursor"
        return self._lakes.read(lake, doing, lambda con: stored_cursor(con, lake, target))

    def _of_none(self, lake: OpenLake, target: Target) -> Applied:
        """Of a destination without a cursor. After a drop: the first generation that may begin, for a control that does
        not know of the drop."""
        if target.item.kind is ItemKind.PROBE:
            return Applied(Outcome.ALREADY_APPLIED, NOT_SEEDED)
        dropped_generation = dropped_generation_in(lake, target.destination, None)
        decision = decide(None, target.item, dropped_generation)
        if decision is Decision.FENCED:
            return Applied(Outcome.FENCED, NOT_SEEDED, generation=dropped_generation + 1)
        if decision is Decision.APPLY:
            raise _moved(target)
        if target.item.expected == NOT_SEEDED:
            return Applied(Outcome.GAP, NOT_SEEDED)
        raise DestinationError(
            "cursor_damaged",
            f"the cursor of {target.destination.key} is gone, which was at {target.item.expected}",
            "another program dropped it; reseed the destination",
        )

    def _answer_directly(self, target: Target, source: TableInfo | None, time_of: TimeOf) -> Applied | None:
        """The same without attaching the lake; None where that has to be: after a seed it may lack its options."""
        sure = None if target.item.kind is ItemKind.SEED else self._sure_cursor(target)
        answer = None if sure is None else _judged(sure[0], target, source, time_of)
        return None if sure is None or answer is None else _with_skipped(answer, sure[1])

    def _sure_cursor(self, target: Target) -> tuple[Cursor, StampRead | None] | None:
        """The stored cursor where a direct commit moved it there, whose files are sure to be there (H7), and that
        commit's stamp; else None.

        The catalog gets the same checks as before an attach: a later statement may bind SQL that it holds.
        """
        if target.lake.sqlite_file is not None or self._direct is None:
            return None
        cursor = self._direct.cursor(target)
        if cursor is None:
            return None
        catalog = CatalogReader(target.lake, SharedPostgres(self._lakes.pool.connections, target.lake.conninfo))
        stamp = read_stamp(catalog.stamp_at(cursor.snapshot))
        if stamp is None or (stamp.item, stamp.commit) != (cursor.item, CommitPath.DIRECT):
            return None
        require_own_files(catalog, target.lake)
        require_no_code(catalog, target.lake, tables_of(target.destination))
        return cursor, stamp

    def _set_options_again(self, lake: OpenLake, target: Target) -> None:
        """The process that seeded the table may have died before it set the options."""
        if not has_options(lake, target):
            self._lakes.guarded(lake, "setting options", lambda con: set_options(con, lake, target))

    def _require_last_files(self, lake: OpenLake, destination: Destination, cursor: Cursor) -> StampRead | None:
        """Report no position before its files were seen: a commit without acknowledgement may have lost them (H7).

        The process that committed it may have died before it looked, and a later commit would hide the loss. If its
        stamp was expired, every file of the table is looked at. Returns the stamp.
        """
        said = read_stamp(lake.catalog.stamp_at(cursor.snapshot))
        stamp = said if said is not None and said.item == cursor.item else None
        self.look_at_files(lake, destination, None if stamp is None else cursor.snapshot)
        return stamp


def _judged(cursor: Cursor, target: Target, source: TableInfo | None, time_of: TimeOf) -> Applied | None:
    """What a stored cursor means for the item; None for what may be applied on top of it."""
    decision = decide(cursor, target.item)
    at = Applied(Outcome.GAP, cursor.position, position_at=cursor.source_position)
    if decision is Decision.FENCED:
        return replace(at, outcome=Outcome.FENCED, generation=cursor.generation)
    require_same(cursor, target, source, time_of)
    if decision is Decision.ALREADY_APPLIED:
        return replace(at, outcome=Outcome.ALREADY_APPLIED, rows_applied=cursor.rows_applied)
    return at if decision is Decision.GAP else None


def _with_skipped(answer: Applied, stamp: StampRead | None) -> Applied:
    """With what the commit skipped that moved the cursor last: the answer that told it may have been lost. Who is
    fenced hears nothing of another life."""
    if answer.outcome is Outcome.FENCED or stamp is None or not stamp.skipped:
        return answer
    offsets = {int(partition): span for partition, span in stamp.skipped.items()}
    return replace(answer, skipped=Skipped(item=stamp.item, offsets=offsets))


def _moved(target: Target) -> DestinationError:
    return DestinationError(
        "destination_busy", f"the cursor of {target.destination.key} moved while it was read", "it is tried again"
    )
