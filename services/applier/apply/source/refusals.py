"""Why a range of the source can't be read for a destination, with what the operator can do about it."""

from __future__ import annotations

from shared.config.model import Routing
from shared.contracts.errors import DestinationError, SourceError
from shared.lake.catalog.touches import Touch


def behind(snapshot: int, end: int) -> SourceError:
    return SourceError(
        "source_behind",
        f"the source is at snapshot {snapshot}, before {end} where the item ends",
        "was the source's catalog restored from a backup? Then reseed its destinations",
    )


def expired(after: int, oldest: int) -> DestinationError:
    return DestinationError(
        "history_expired",
        f"the source no longer keeps snapshot {after}, up to which this destination is exact; the oldest is {oldest}",
        "reseed the destination, and keep the source's snapshots for longer than the longest pause",
    )


def end_expired(end: int, oldest: int) -> SourceError:
    """Of an item that was planned when the source still kept its end: the reader plans another."""
    return SourceError(
        "source_behind",
        f"the source no longer keeps snapshot {end}, where the item ends; the oldest is {oldest}",
        "it is planned again by itself; if this comes again and again, keep the source's snapshots for longer",
    )


def expired_start(start: int, oldest: int) -> DestinationError:
    """Of a rewind that was accepted before."""
    return DestinationError(
        "history_expired",
        f"the source no longer keeps snapshot {start}, to which this destination is rewound; the oldest is {oldest}",
        "rewind it to a snapshot that the source keeps, or reseed it",
    )


def require_insertions(touch: Touch, routing: Routing, *, deletes: bool) -> None:
    """Raises ``DestinationError`` where a pipeline without key columns can't follow what a snapshot did to its table.

    ``deletes``: the catalog shows that rows were taken back, beyond what the snapshot's own marks say.
    """
    deletes = deletes or bool(touch.marks & {"deleted_from_table", "inlined_delete"})
    inserts = bool(touch.marks & {"inserted_into_table", "inlined_insert"})
    if deletes and inserts and routing.on_update == "park":
        raise DestinationError(
            "update_in_append_only",
            f"snapshot {touch.snapshot} of the source both deletes and inserts, which may be an update;"
            " a pipeline without key columns can't follow one",
            "declare routing.key_columns, or set routing.on_update: append to append both, then resume",
        )
    if deletes and not inserts and routing.on_delete == "park":
        raise DestinationError(
            "delete_in_append_only",
            f"snapshot {touch.snapshot} of the source deletes rows; a pipeline without key columns can't follow that",
            "declare routing.key_columns, or set routing.on_delete: ignore to keep such rows, then resume",
        )
