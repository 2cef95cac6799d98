"""When a destination's table is compacted: by what its last commit saw, with a number of commits as an upper bound."""

from __future__ import annotations

from dataclasses import dataclass

from shared.contracts.upkeep import Compaction, TableWear

LEAST_DEAD_ROWS = 100_000
"""Fewer deleted rows are no reason: their share of a small table is large after each commit, and costs no reader."""

MENDED_BY_FLUSH = frozenset({"inlined_rows", "inlined_deletes"})
"""Reasons of commits by the extension (``ExtensionReason``) that compaction ends, since it flushes first."""


@dataclass(frozen=True, slots=True)
class Wear:
    """What is known of a table since its compaction was last asked for, or since this reader began.

    ``files``, ``rows`` and ``dead_rows`` are as last told; a commit that told nothing counts as one file. ``inlined``:
    rows or deletes wait for a flush. What the first commit after a compaction still tells was left by it (``left``):
    to ask again would bring nothing.
    """

    applies: int = 0
    files: int = 0
    rows: int = 0
    dead_rows: int = 0
    inlined: bool = False
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """What a compaction left."""

    files: int = 0
    dead_rows: int = 0
    inlined: bool = False


def worn(wear: Wear, told: TableWear | None, reason: str | None) -> Wear:
    """``wear`` after one more commit of changes: what it told, or why the extension committed."""
    files = wear.files + 1 if told is None else told.files
    rows, dead_rows = (wear.rows, wear.dead_rows) if told is None else (told.rows, told.dead_rows)
    inlined = reason in MENDED_BY_FLUSH
    was = Left(files - 1, dead_rows, inlined) if wear.left is None else wear.left
    left = Left(min(was.files, files), min(was.dead_rows, dead_rows), was.inlined and inlined)
    return Wear(wear.applies + 1, files, rows, dead_rows, inlined, left)


UNKNOWN = Wear(left=Left())
"""Of a reader that begins: what its first answer tells asks for a compaction."""

ASKED = Wear()
"""Once a compaction was asked for, whatever its outcome: a failing compaction must not delay every change."""


def is_due(wear: Wear, rules: Compaction) -> bool:
    """Whether a compaction is to be asked for before the next changes."""
    if not rules.applies or wear.left is None:
        return False
    return (
        wear.applies >= rules.applies
        or wear.files - wear.left.files >= rules.files
        or wear.dead_rows - wear.left.dead_rows >= max(LEAST_DEAD_ROWS, rules.dead_share * (wear.rows + wear.dead_rows))
        or (wear.inlined and not wear.left.inlined)
    )
