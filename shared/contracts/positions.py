"""Positions with a spelling: an integer that only grows within a generation, and what the source itself calls it.

A lake's position is its snapshot id and has no spelling. A topic's is the number of records before it, over all
partitions, and its spelling is the next offset of each: two vectors may have one sum, so the integer alone proves
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

LONGEST_SPELLING = 200_000
"""Characters: vectors of some ten thousand partitions."""

UNSPELLED = ""
"""The spelling of a position that has none."""

_OFFSET = r'"(?:0|[1-9]\d{0,8})":[1-9]\d{0,17}'
CANONICAL = re.compile(rf"\{{(?:{_OFFSET}(?:,{_OFFSET})*)?\}}")


@dataclass(frozen=True, slots=True)
class Vector:
    """The next offset of each partition, in the order of partitions; a partition that is not there is at 0."""

    offsets: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, offsets: Mapping[int, int]) -> Vector:
        return cls(tuple(sorted((partition, offset) for partition, offset in offsets.items() if offset)))

    @classmethod
    def parse(cls, spelled: str) -> Vector:
        """Raises ``ValueError`` for any text that ``text`` does not give: one vector has one spelling."""
        if len(spelled) > LONGEST_SPELLING or CANONICAL.fullmatch(spelled) is None:
            raise ValueError("no vector of offsets in its canonical spelling")
        vector = cls.of({int(partition): offset for partition, offset in json.loads(spelled).items()})
        if vector.text != spelled:
            raise ValueError("no vector of offsets in its canonical spelling")
        return vector

    @property
    def text(self) -> str:
        """Canonical JSON, such as ``{"0":100,"1":98}``."""
        return "{" + ",".join(f'"{partition}":{offset}' for partition, offset in self.offsets) + "}"

    @property
    def records(self) -> int:
        """The number of offsets before the vector: the position's integer."""
        return sum(offset for _, offset in self.offsets)

    @property
    def by_partition(self) -> dict[int, int]:
        return dict(self.offsets)

    def covers(self, other: Vector) -> bool:
        """Whether it is at or beyond the other in every partition: a partial order. TLA: ``Covers``."""
        mine = self.by_partition
        return all(mine.get(partition, 0) >= offset for partition, offset in other.offsets)

    def joined(self, other: Vector) -> Vector:
        """The first that covers both."""
        mine, theirs = self.by_partition, other.by_partition
        return Vector.of({each: max(mine.get(each, 0), theirs.get(each, 0)) for each in {*mine, *theirs}})

    def met(self, other: Vector) -> Vector:
        """The last that both cover."""
        theirs = other.by_partition
        return Vector.of({each: min(offset, theirs.get(each, 0)) for each, offset in self.offsets})

    def beyond(self, other: Vector) -> dict[int, tuple[int, int]]:
        """The offsets between the two where this one is further: the other's and its own, by partition."""
        theirs = other.by_partition
        return {each: (theirs.get(each, 0), at) for each, at in self.offsets if theirs.get(each, 0) < at}


@dataclass(frozen=True, slots=True)
class SpelledPosition:
    """A position as messages and cursors carry it. Positions of one source all have a spelling, or none has."""

    number: int
    spelled: str = UNSPELLED

    def covers(self, other: SpelledPosition) -> bool:
        """Whether all up to the other is up to this one, too. False where only one of them has a spelling."""
        if self.spelled and other.spelled:
            return Vector.parse(self.spelled).covers(Vector.parse(other.spelled))
        return not self.spelled and not other.spelled and self.number >= other.number


def is_spelling_of(spelled: str, number: int) -> bool:
    """Whether a spelling that is not empty is one of the position with that integer."""
    try:
        return Vector.parse(spelled).records == number
    except ValueError:
        return False


def _canonical(spelled: str) -> str:
    return Vector.parse(spelled).text


Spelling = Annotated[str, Field(max_length=LONGEST_SPELLING), AfterValidator(_canonical)]
"""A message's field. Raises a ``ValidationError`` for what is no spelling."""
