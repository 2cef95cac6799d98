"""Mistakes in what files tell of a range of the source's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.lake.catalog.reader import TableInfo
from shared.lake.changes import changed_files, changed_rows
from shared.lake.changes.changed_files import ChangedFiles
from shared.lake.changes.changed_rows import Relation, RowsByFiles
from shared.lake.columns.history import Field, fields_at
from tests.mutants.mistake import Mistake, put

CHANGED = "tests/lake/test_changed_rows.py"


def _date_deletes_by_their_file() -> None:
    """A delete file of several snapshots begins with the first of them."""
    texts = tuple(text.replace(changed_files._NEW, "d.begin_snapshot >= :first") for text in changed_files._PARTS)
    put(changed_files, "_PARTS", texts)


def _delete_dead_rows_again() -> None:
    right = changed_rows._deleted

    def deleted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
        return right(replace(files, deletes=()) if files.ended else files, fields)

    put(changed_rows, "_deleted", deleted)


def _keep_inlined_rows() -> None:
    right = changed_rows._deleted

    def deleted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
        return right(replace(files, rows=(), places=()), fields)

    put(changed_rows, "_deleted", deleted)


def _insert_all_of_a_merged_file() -> None:
    right = changed_rows._inserted

    def inserted(files: ChangedFiles, fields: Sequence[Field]) -> Relation:
        return right(replace(files, begun=tuple(replace(each, several=False) for each in files.begun)), fields)

    put(changed_rows, "_inserted", inserted)


def _read_what_no_file_holds() -> None:
    def readable(table: TableInfo, names: Sequence[str], at: int) -> tuple[Field, ...]:
        there = {field.name.lower(): field for field in fields_at(table.versions, at)}
        return tuple(there[name.lower()] for name in names)

    put(changed_rows, "_readable", readable)


def _believe_all_files_alike() -> None:
    put(RowsByFiles, "is_unlike", lambda *_: False)


def _take_for_null_what_is_missing() -> None:
    put(changed_rows, "_FILES", changed_rows._FILES.replace("(?, ", "(?, union_by_name = true, "))


MISTAKES: tuple[Mistake, ...] = (
    Mistake("deletes-by-file", "deletes are dated by their file", _date_deletes_by_their_file,
            (CHANGED, "-k", "tell_no")),
    Mistake("dead-die-again", "rows that were dead are deleted with their file", _delete_dead_rows_again,
            (CHANGED, "-k", "tell_no")),
    Mistake("inlined-stay", "what a catalog holds itself is never deleted", _keep_inlined_rows,
            (CHANGED, "-k", "tell_no")),
    Mistake("merged-is-new", "a merged file's rows are all of the range", _insert_all_of_a_merged_file,
            (CHANGED, "-k", "tell_no")),
    Mistake("no-default-in-files", "older rows have no default of a key", _read_what_no_file_holds,
            (CHANGED, "-k", "do_not_hold")),
    Mistake("missing-is-null", "a column that one of several files lacks is NULL", _take_for_null_what_is_missing,
            (CHANGED, "-k", "among_files")),
    Mistake("all-files-alike", "a file of another program is tried again for good", _believe_all_files_alike,
            (CHANGED, "tests/fast/reader/source/test_lake_source.py", "-k", "other_programs")),
)  # fmt: skip
