"""The records of a range that no destination takes → the message about them to the pipeline's reader.

With keys, a record without any value is none of them: it deletes its key, and needs no destination for that.
"""

from __future__ import annotations

import heapq
from collections.abc import Set

from services.applier.records.routing import Routed
from shared.contracts.digest import value_digest
from shared.contracts.positions import Vector
from shared.contracts.reports import LONGEST_OFFERED, MOST_OF_A_RANGE, Offered, UnroutedRecords


def unrouted_of(
    routed: Routed, known: Set[str], pipeline: str, topic_id: str, ends: tuple[Vector, Vector]
) -> UnroutedRecords:
    """``known``: the routing values of all destinations of the pipeline. Values are untrusted data, and so is
    their number: the message holds those with most records, and of a long one its beginning."""
    after, through = ends
    strange = [(len(places), value) for value, places in routed.places.items() if value not in known]
    return UnroutedRecords(
        pipeline=pipeline,
        topic_id=topic_id,
        after_at=after.text,
        through_at=through.text,
        rows=routed.nowhere + sum(rows for rows, _ in strange),
        values=tuple(_offered(*each, through.records) for each in heapq.nlargest(MOST_OF_A_RANGE, strange)),
        more=len(strange) > MOST_OF_A_RANGE,
    )


def _offered(rows: int, value: str, position: int) -> Offered:
    cut = value[:LONGEST_OFFERED]
    return Offered(value=cut, whole=cut == value, digest=value_digest(value), rows=rows, first_seen=position)
