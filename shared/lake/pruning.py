"""Which comparisons with a lake's columns DuckLake may see, and how to compare so that it sees nothing.

A filter, or the keys of a join's other side, that DuckDB pushes into a scan of a lake become *text* of the query that
lists the table's files (H16): a NUL cuts it, and ``{SNAPSHOT_ID}`` and its like are replaced in it. What it compares
with is text that went the same way, so the statistics of a column of text lie as soon as *any* row of a file holds such
a word, also of another tenant. Where ``bucket()`` partitions and other files are side by side, files are left out
whatever the values are (H17). A comparison of expressions reaches no such query; every file is opened for it. Where
values are *bound* beside it (``among``), the scan itself leaves out what it can, by what it finds in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shared.config.substituted_words import PLACEHOLDER
from shared.lake.sql import path
from shared.lake.types import TIMETZ

TEXT = "VARCHAR"

PRUNABLE = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(\d+, ?\d+\)|DATE|UUID|TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?"
)
"""Types whose values have one spelling each, of harmless characters, and statistics that compare as the values do."""

MOST_BOUND = 32
"""Values that a scan compares each row with: more than so many share most of a table's files."""

LONGEST = 200
"""DuckLake cuts the texts of its statistics after 256 bytes."""

HARMLESS = r"[\p{L}\p{M}\p{N} _.,:;@/+=#&()<>~!?*|-]*"
"""Texts that mean themselves wherever a query holds them: neither quotes nor braces, neither NUL nor its kind."""


@dataclass(frozen=True)
class FileLayout:
    """What metadata says of a table's files: whether leaving some out may be believed, and by which columns.

    ``single`` are columns of which each file holds one value, so that no row's statistics depend on another's;
    ``partitioned`` are those whose values, or what is made of them, metadata holds for each file.
    """

    misleads: bool = False
    single: frozenset[str] = frozenset()
    partitioned: frozenset[str] = frozenset()

    def notice(self, schema: str, table: str) -> str | None:
        """What an operator should know of it: that the table is read whole, and which statement ends that (H17)."""
        if not self.misleads:
            return None
        named = path(schema, table)
        return (
            f"{schema}.{table} of the source has bucket() partitions beside files without them, which DuckLake does not"
            f" find by value: it is read whole each time. ALTER TABLE {named} RESET PARTITIONED BY ends that; so does"
            " rewriting all its rows"
        )


PLAIN = FileLayout()
UNBELIEVED = FileLayout(misleads=True)
"""For a comparison that has to read every file."""


def layout_of(parts: Iterable[tuple[str, str, int]]) -> FileLayout:
    """The layout of a table by its partition columns: transform, name in small letters, files of another partitioning.

    Scans leave files out by ``bucket()`` alone, and by statistics (H17).
    """
    known = list(parts)
    alike = all(not others for _, _, others in known)
    return FileLayout(
        misleads=not alike and any(transform.startswith("bucket") for transform, _, _ in known),
        single=frozenset(name for transform, name, _ in known if transform == "identity" and alike),
        partitioned=frozenset(name for _, name, _ in known),
    )


def may_prune(declared: str, layout: FileLayout = PLAIN, *, harmless: bool) -> bool:
    """Whether a column may be compared plainly: by its type, or, for text, because all of it is ``harmless``."""
    if layout.misleads:
        return False
    return harmless if declared == TEXT else PRUNABLE.fullmatch(declared) is not None


def comparison(left: str, right: str, declared: str, *, prune: bool, nulls: bool = False) -> str:
    """The comparison of two expressions of one declared type; ``nulls``: NULL equals NULL."""
    operator = "IS NOT DISTINCT FROM" if nulls else "="
    if prune:
        return f"{left} {operator} {right}"
    return f"{unseen(left, declared)} {operator} {unseen(right, declared)}"


def unseen(expression: str, declared: str) -> str:
    """The same value in a shape that no scan takes for its column; equal where the values are."""
    if declared == TEXT:
        return f"encode({expression})"
    # Of a TIMETZ DuckLake keeps the moment only, and in UTC, once it is in a file.
    return f"[{expression} AT TIME ZONE 'UTC']" if declared == TIMETZ else f"[{expression}]"


def among(expression: str) -> str:
    """Whether a text is one of the list of BLOBs that is bound at its place.

    A join alone compares after its scan, which has read all columns by then; of a bound list the scan knows, and reads
    the other columns only of rows that are in it. DuckLake sees an expression, so nothing of it is text of a query.
    """
    return f"list_contains(?::BLOB[], encode({expression}))"


def is_harmless(expression: str) -> str:
    """Whether a text means itself in any query. NULL does."""
    return f"coalesce(length({expression}) <= {LONGEST} AND regexp_full_match({expression}, '{HARMLESS}'), true)"


def holds_text(declared: str) -> bool:
    """Whether values of the type hold text that DuckLake writes into statistics; those of a BLOB are in hexadecimal."""
    return any(kind in declared for kind in (TEXT, "JSON", "VARIANT", "ENUM"))


def is_uncarried(expression: str, declared: str) -> str:
    """Whether a value holds a word that DuckLake would replace where it writes the value's statistics."""
    text = expression if declared == TEXT else f"CAST({expression} AS VARCHAR)"
    return f"(contains({text}, '{{') AND regexp_matches({text}, '{PLACEHOLDER}'))"
