"""What a table is to be partitioned and sorted by: a declared layout, held against the source's columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from shared.config.table_layout import (
    COLUMN,
    TRANSFORMS,
    LayoutRefused,
    PartitionField,
    SortKey,
    partitions,
    sort_keys,
)
from shared.contracts.errors import DestinationError
from shared.contracts.layout import NO_LAYOUT, SAME, TableLayout
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.catalog.reader import Column
from shared.lake.pruning import PRUNABLE, TEXT

MOMENT = re.compile(r"DATE|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?")

T = TypeVar("T")

Keys = tuple[tuple[PartitionField, ...], tuple[SortKey, ...]]


def keys_of(layout: TableLayout | None, columns: Sequence[Column], source: Arrangement | None) -> Keys:
    """What the table is to be partitioned and sorted by. ``source``: how the source is, where the layout is ``SAME``.

    Raises ``invalid_destination`` for a column or a transform that the source's columns do not allow.
    """
    if layout is None or layout == NO_LAYOUT:
        return (), ()
    known = {column.name.lower(): column for column in columns}
    by = _partitions(layout.partitioned_by, source)
    order = _sort_keys(layout.sorted_by, source)
    for part in by:
        _require_partition(part, known.get(part.column.lower()))
    for key in order:
        if key.column.lower() not in known:
            raise _refused("sorted_by", f"the source has no column {key.column!r}")
    return by, order


def _partitions(text: str, source: Arrangement | None) -> tuple[PartitionField, ...]:
    if text != SAME:
        return _parsed("partitioned_by", partitions, text)
    found = () if source is None else source.partitions
    for transform, column in found:
        if transform not in (COLUMN, *TRANSFORMS):
            said = f"the source is partitioned by {transform[:40]} of {column}, which is not set at a destination"
            raise _refused("partitioned_by", said)
    return tuple(PartitionField(transform, column) for transform, column in found)


def _sort_keys(text: str, source: Arrangement | None) -> tuple[SortKey, ...]:
    if text != SAME:
        return _parsed("sorted_by", sort_keys, text)
    return tuple(_sort_key(*each) for each in (() if source is None else source.sort_keys))


def _sort_key(expression: str, direction: str, nulls: str) -> SortKey:
    """That of the source, which may be sorted by any expression."""
    try:
        (key,) = sort_keys(expression)
    except (LayoutRefused, ValueError):
        said = "the source is sorted by an expression, which is not set at a destination"
        raise _refused("sorted_by", said) from None
    return SortKey(key.column, direction == "DESC", nulls == "NULLS_FIRST")


def _parsed(key: str, parse: Callable[[str], tuple[T, ...]], text: str) -> tuple[T, ...]:
    try:
        return parse(text)
    except LayoutRefused as refused:
        raise _refused(key, str(refused)) from None


def _require_partition(part: PartitionField, column: Column | None) -> None:
    if column is None:
        raise _refused("partitioned_by", f"the source has no column {part.column!r}")
    if part.transform == COLUMN:
        if column.type != TEXT and not PRUNABLE.fullmatch(column.type):
            raise _refused("partitioned_by", f"{column.name} is {column.type[:80]}, whose values name no partition")
    elif not MOMENT.fullmatch(column.type) or (part.transform == "hour" and column.type == "DATE"):
        raise _refused("partitioned_by", f"{column.name} is {column.type[:80]}, which has no {part.transform}")


def _refused(key: str, said: str) -> DestinationError:
    hint = f"correct layout.{key} of the pipeline or of the destination; it is tried again by itself"
    return DestinationError("invalid_destination", f"layout.{key}: {said}", hint)
