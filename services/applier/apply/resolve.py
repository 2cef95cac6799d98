"""Phases 1 and 2 as functions of values: touched keys + end state → net change.

The lake does this work in SQL (``feed``), for millions of rows; these few lines say what that SQL must compute, and the
property tests hold the two against each other. ``tla/Viaduck.tla`` calls this action ``Resolve``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

Key = Hashable
Row = Mapping[str, object]


@dataclass(frozen=True)
class Image:
    """A row as some snapshot of the range inserted or deleted it, old or new: all that a feed can be trusted for."""

    routing_value: object
    key: Key


@dataclass(frozen=True)
class NetChange:
    """What is left of a range for one destination: whole rows to be there, and keys to be gone."""

    upserts: Mapping[Key, Row]
    deletes: frozenset[Key]

    @property
    def is_empty(self) -> bool:
        return not self.upserts and not self.deletes

    @property
    def touched(self) -> frozenset[Key]:
        return self.deletes | self.upserts.keys()


class KeyNotUnique(ValueError):
    """Two live rows of one routing value share a key: the key columns are not a key."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"two live rows have the key {key!r}")
        self.key = key


def touched_keys(insertions: Iterable[Image], deletions: Iterable[Image], routing_value: object) -> frozenset[Key]:
    """Every key that any image of the range names for one routing value: a superset of what really changed (H2, H5).

    A row that moved between tenants is touched in both, because its old image names the old routing value and its new
    image the new one; a changed key touches both keys in the same way.
    """
    return frozenset(
        image.key for images in (insertions, deletions) for image in images if image.routing_value == routing_value
    )


def resolve(touched: Iterable[Key], end_state: Iterable[tuple[Key, Row]]) -> NetChange:
    """The net change of one destination, from its touched keys and its rows at the end of the range.

    Raises ``KeyNotUnique`` rather than guess which of two live rows is meant.
    """
    keys = frozenset(touched)
    upserts: dict[Key, Row] = {}
    for key, row in end_state:
        if key not in keys:
            continue
        if key in upserts:
            raise KeyNotUnique(key)
        upserts[key] = row
    return NetChange(upserts, keys - upserts.keys())
