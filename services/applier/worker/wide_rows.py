"""Rows so wide that DuckDB can hold but few of them: how many destinations one reading serves then.

Wherever DuckDB keeps, sorts or scans rows it takes 2,048 at a time, and spills what it keeps only between such vectors.
Of rows of some hundred kilobytes one vector fills the worker, and the allocator keeps for a while what is freed.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.applier.apply.source.reading import Reading
from services.applier.model.task import SourceTable
from services.applier.worker.in_flight import Numbered

VECTOR_ROWS = 2_048

READINGS_IN_MEMORY = 8
"""How often a reading of wide rows should fit: it is scanned, sorted and kept, each in a copy."""

SAMPLE = 8
"""Rows of a reading that are weighed."""


class Wide:
    """Which source tables a worker knows to have wide rows, by the rows that it saw last."""

    def __init__(self, memory: int) -> None:
        """``memory``: what DuckDB may use, in bytes."""
        self._room = memory / READINGS_IN_MEMORY
        self._row_bytes: dict[tuple[str, str, str], float] = {}

    def weigh(self, source: SourceTable, reading: Reading) -> None:
        """Remember how wide the rows of a reading are, as text, which is close enough."""
        some = f"SELECT r FROM {reading.memory('rows')} AS r LIMIT {SAMPLE}"
        (weight,) = reading.con.execute(f"SELECT avg(strlen(CAST(r AS VARCHAR))) FROM ({some})").fetchall()[0]
        if weight is not None:
            self._row_bytes[_named(source)] = reading.row_bytes = float(weight)

    def parts(self, source: SourceTable, group: Sequence[Numbered]) -> list[Sequence[Numbered]] | None:
        """The group in readings that fit, by the rows that are expected; None where rows are of a usual width."""
        row_bytes = self._row_bytes.get(_named(source), 0.0)
        if row_bytes * VECTOR_ROWS <= self._room:
            return None
        parts: list[list[Numbered]] = []
        room = 0.0
        for numbered in group:
            needed = row_bytes * max(1, numbered[1].item.rows or 0)
            if not parts or needed > room:
                parts.append([])
                room = self._room
            parts[-1].append(numbered)
            room -= needed
        return list(parts)


def _named(source: SourceTable) -> tuple[str, str, str]:
    return source.lake.catalog, source.schema, source.table
