"""When a commit is left to the extension, and why."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from shared.lake.columns.history import Field
from shared.lake.direct.state import (
    CURSOR_COLUMNS,
    SPELLED_CURSOR_COLUMNS,
    DeleteFile,
    Option,
    TableState,
    lake_option,
)
from shared.lake.direct.statistics import NESTED, ORDERS, are_comparable, kind_of
from shared.lake.direct.structure import Structure

CATALOG_VERSIONS = {"1.0": "tests/lake/test_direct_twins.py"}
"""Versions of DuckLake's format that are written directly, and the tests that hold such commits against the
extension's. Any other is left to the extension, which knows whether it can write it."""

HARMLESS_OPTIONS = frozenset(
    {
        "version",
        "created_by",
        "data_path",
        "encrypted",
        "data_inlining_row_limit",
        "require_commit_message",
        "expire_older_than",
        "delete_older_than",
        "auto_compact",
        "rewrite_delete_threshold",
        "target_file_size",
    }
)
"""Options of a lake that say nothing of how a small file is to be written."""


class ExtensionReason(StrEnum):
    """Why the extension commits."""

    FIRST_COMMIT = "first_commit"
    TABLE_EXISTS = "table_exists"
    LARGE_SEED = "large_seed"
    TOPIC_SEED = "topic_seed"
    SCHEMA_CHANGE = "schema_change"
    LEFT_OUT = "left_out"
    CATALOG_VERSION = "catalog_version"
    CURSOR_IN_FILE = "cursor_in_file"
    INLINED_ROWS = "inlined_rows"
    INLINED_DELETES = "inlined_deletes"
    PARTITIONED = "partitioned"
    SORTED = "sorted"
    ENCRYPTED = "encrypted"
    NOT_NULL = "not_null"
    COLUMN_TYPE = "column_type"
    KEY_DEFAULT = "key_default"
    FILE_KIND = "file_kind"
    OPTION = "option"
    STATISTICS = "statistics"
    DATA_PATH = "data_path"
    FOREIGN_FILES = "foreign_files"
    OTHER_KEYS = "other_keys"
    DOUBLED_KEY = "doubled_key"
    DAMAGED_FILE = "damaged_file"
    RIVALS = "rivals"
    UNREADABLE_CATALOG = "unreadable_catalog"
    OTHER_CURSOR = "other_cursor"


ALWAYS_BY_EXTENSION = frozenset(
    {
        ExtensionReason.FIRST_COMMIT,
        ExtensionReason.SCHEMA_CHANGE,
        ExtensionReason.LEFT_OUT,
        ExtensionReason.DOUBLED_KEY,
        ExtensionReason.DAMAGED_FILE,
        ExtensionReason.OTHER_KEYS,
        ExtensionReason.RIVALS,
        ExtensionReason.UNREADABLE_CATALOG,
        ExtensionReason.OTHER_CURSOR,
    }
)
"""What no setting changes: DDL is the extension's, and so are values that only the table's own rows tell, and finding
out what is wrong with a table. Where rivals are quick, the extension waits for those of the same tables alone, and it
has an instance for each lake."""


def structure_refusal(
    structure: Structure, wanted: Sequence[tuple[str, str]] | None, *, spelled: bool = False
) -> ExtensionReason | None:
    """Why a table of that structure can't be committed to directly; None if it can.

    ``wanted`` are the columns that it is to have, (name, declared type) in order; None where no row is written.
    ``spelled``: its source spells positions.
    """
    if len(structure.cursor_inlined) != 1:
        return ExtensionReason.CURSOR_IN_FILE
    own = SPELLED_CURSOR_COLUMNS if spelled else CURSOR_COLUMNS
    if sorted(field.name for field in structure.cursor_columns) != sorted(own):
        return ExtensionReason.OTHER_CURSOR
    if any(kind_of(field.type) not in ORDERS for field in _scalars(structure.fields)):
        return ExtensionReason.COLUMN_TYPE
    names = (field.name for field in structure.fields)
    if wanted is not None and list(zip(names, structure.declared, strict=True)) != list(wanted):
        return ExtensionReason.SCHEMA_CHANGE
    return None


def lake_refusal(options: Sequence[Option]) -> ExtensionReason | None:
    """Why a lake with these options can't be committed to directly; None if it can."""
    if lake_option(options, "version") not in CATALOG_VERSIONS:
        return ExtensionReason.CATALOG_VERSION
    if lake_option(options, "encrypted") not in (None, "false"):
        return ExtensionReason.ENCRYPTED
    if any(option.key not in HARMLESS_OPTIONS for option in options):
        return ExtensionReason.OPTION
    return None


def commit_refusal(structure: Structure, state: TableState) -> ExtensionReason | None:
    """Why a table that was looked at can't be committed to directly; None if it can, as far as the look tells."""
    if (refused := lake_refusal(state.options)) is not None:
        return refused
    if len(state.cursors) != 1 or state.cursor_rows_in_files or state.cursor_stats is None:
        return ExtensionReason.CURSOR_IN_FILE
    return _table_refusal(state) or _statistics_refusal(structure, state)


def _table_refusal(state: TableState) -> ExtensionReason | None:
    if state.partitioned:
        return ExtensionReason.PARTITIONED
    if state.sorted:
        return ExtensionReason.SORTED
    if state.inlined_rows:
        return ExtensionReason.INLINED_ROWS
    if state.inlined_deletes:
        return ExtensionReason.INLINED_DELETES
    if any(not file.plain or len(file.deletes) > 1 or _strange(file.deletes) for file in state.files):
        return ExtensionReason.FILE_KIND
    if state.stats is None and state.files:
        return ExtensionReason.FILE_KIND
    return None


def _statistics_refusal(structure: Structure, state: TableState) -> ExtensionReason | None:
    """Why the statistics of the table's columns can't be merged with those of a file; None if they can."""
    for field in _scalars(structure.fields):
        kept = state.columns.get((structure.table_id, field.id))
        if kept is not None and field.id not in structure.widened and not are_comparable(kept, field.type):
            return ExtensionReason.STATISTICS
    return None


def _strange(deletes: Sequence[DeleteFile]) -> bool:
    return any(each.format != "parquet" for each in deletes)


def _scalars(fields: Sequence[Field]) -> list[Field]:
    found: list[Field] = []
    for field in fields:
        found += _scalars(field.fields) if kind_of(field.type) in NESTED else [field]
    return found
