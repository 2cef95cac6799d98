"""Which parts of a range insert rows, and which only move them between files."""

from __future__ import annotations

from collections.abc import Sequence

from shared.contracts.ranges import Range
from shared.lake.catalog.touches import Touch


def insertion_runs(snapshots: Range, touches: Sequence[Touch]) -> list[Range]:
    """The range without its maintenance snapshots, as few runs as possible, each ending at a snapshot that touches.

    A rewrite shows every surviving row as inserted (H5); a pipeline without keys would append them again. Only
    *insertions* may be read in such runs: deletions before a rewrite can be lost from the feed of a shorter range.
    """
    runs: list[Range] = []
    after, last = snapshots.after, None
    for touch in touches:
        if touch.is_maintenance:
            if last is not None:
                runs.append(Range(after, last))
            after, last = touch.snapshot, None
        else:
            last = touch.snapshot
    if last is not None:
        runs.append(Range(after, last))
    return runs
