"""Short texts by which two services can tell if they speak of the same: of a set of destinations, or of a value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

_MODULUS = 2**128
VALUE_DIGITS = 32

Version = tuple[str, int, str]
"""A destination's id, generation and revision."""


def digest(known: Iterable[Version]) -> str:
    """The digest of what is known of each destination; their order does not matter."""
    return _written(sum(_hash(*one) for one in known))


class RunningDigest:
    """The digest of a set that changes one destination at a time: each change costs as much as one destination."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, one: Version) -> None:
        self._sum += _hash(*one)

    def remove(self, one: Version) -> None:
        self._sum -= _hash(*one)

    def __str__(self) -> str:
        return _written(self._sum)


def value_digest(value: str) -> str:
    """A name of fixed length for a routing value, whatever that holds: 32 hexadecimal digits."""
    return hashlib.sha256(value.encode()).hexdigest()[:VALUE_DIGITS]


def _written(total: int) -> str:
    return f"{total % _MODULUS:032x}"


@lru_cache(maxsize=65_536)
def _hash(destination: str, generation: int, revision: str) -> int:
    text = f"{destination}\x00{generation}\x00{revision}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
