"""The typed error of what failed while a task was done."""

from __future__ import annotations

from shared.contracts.errors import DestinationError, ViaduckError
from shared.lake.failure import classify

OF_THE_SOURCE = frozenset(
    {
        "destination_unreachable",
        "destination_busy",
        "storage_failed",
        "storage_refused",
        "access_denied",
        "lake_missing",
        "lake_incompatible",
    }
)
"""What is said of any lake and means, while the source is read, that no destination is to blame."""


def explain(error: Exception, doing: str, *, source: bool = False) -> ViaduckError:
    """``source``: it was the source that was read."""
    known = classify(error, doing)
    if source and known.type in OF_THE_SOURCE:
        return DestinationError("source_unreachable", known.message, "check the source's catalog and store")
    return known
