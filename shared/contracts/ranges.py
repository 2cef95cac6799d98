"""Snapshot ranges: half open, written ``(after, through]`` everywhere."""

from __future__ import annotations

from dataclasses import dataclass

NOT_SEEDED = -1
"""The position that a destination's first seed replaces: before every snapshot."""


@dataclass(frozen=True, order=True, slots=True)
class Range:
    """Source snapshots after ``after`` up to and including ``through``; both are snapshot ids."""

    after: int
    through: int

    def __post_init__(self) -> None:
        if self.after < NOT_SEEDED or self.through < self.after:
            raise ValueError(f"no range: ({self.after}, {self.through}]")

    def __str__(self) -> str:
        return f"({self.after}, {self.through}]"

    @property
    def is_empty(self) -> bool:
        return self.after == self.through

    def inclusive(self) -> tuple[int, int]:
        """First and last snapshot, both inclusive, as DuckLake's feed functions want them.

        The only place where the two conventions meet: a second one would sooner or later be off by one.
        """
        if self.is_empty:
            raise ValueError(f"an empty range has no first snapshot: {self}")
        return self.after + 1, self.through
