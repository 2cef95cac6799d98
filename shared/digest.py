"""One short text for a set of destinations as somebody knows them, so that two services can tell if they agree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

_MODULUS = 2**128

Version = tuple[str, int, str]
"""A destination's id, generation and revision."""


def digest(known: Iterable[Version]) -> str:
    """The digest of what is known of each destination; their order does not matter."""
    return f"{sum(_hash(*one) for one in known) % _MODULUS:032x}"


@lru_cache(maxsize=65_536)
def _hash(destination: str, generation: int, revision: str) -> int:
    text = f"{destination}\x00{generation}\x00{revision}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
