"""Which names a column of a topic's table may have."""

from __future__ import annotations

from shared.config.substituted_words import SUBSTITUTED_WORD
from shared.lake.types import is_reserved

RESCUED = "_rescued"
"""The column of what has no other place: JSON, an object of fields by their names."""

METADATA_PREFIX = "_kafka_"

MAX_NAME_BYTES = 255

RESERVED = frozenset({"begin_snapshot", "end_snapshot", "row_id", RESCUED})
"""Beside those of the change feed: what DuckLake refuses while it inlines rows, and our own."""

OWN_PREFIXES = (METADATA_PREFIX, "_viaduck")


def may_be_column(name: str) -> bool:
    """Whether a field's name can be a column's; every other field is rescued."""
    lower = name.lower()
    return (
        0 < len(name.encode()) <= MAX_NAME_BYTES
        and "\x00" not in name
        and not is_reserved(name)
        and lower not in RESERVED
        and not lower.startswith(OWN_PREFIXES)
        and SUBSTITUTED_WORD.search(name) is None
    )
