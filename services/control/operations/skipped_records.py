"""Writes down which records of a topic were skipped, as its operator chose: they were gone before they were read."""

from __future__ import annotations

import structlog

from services.control.store.audit_log import AuditLog
from services.control.view.status_store import StatusStore
from shared.contracts.messages import Progress, Skipped

log = structlog.get_logger(__name__)

DEED = "records skipped"
MOST_NAMED = 20
"""Partitions that an entry names."""


class SkippedRecords:
    """Of one pipeline. Each commit that skipped is written down once, however often it is told."""

    def __init__(self, status_store: StatusStore, audit_log: AuditLog) -> None:
        self._status_store = status_store
        self._audit_log = audit_log

    def turn(self) -> None:
        """Write down what was heard of. Raises ``DependencyError``; then it is still waiting."""
        for progress in self._status_store.skips():
            if progress.skipped is not None:
                self._note(progress, progress.skipped)

    def _note(self, progress: Progress, skipped: Skipped) -> None:
        told = {"item": skipped.item, "records": skipped.records, "offsets": _named(skipped)}
        is_news = self._audit_log.note_once(
            DEED, progress.applier or None, progress.at, told, progress.destination, mark=skipped.item
        )
        self._status_store.skip_noted(skipped.item)
        if is_news:
            log.warning(
                "records_skipped", destination=progress.destination, records=skipped.records, offsets=_named(skipped)
            )


def _named(skipped: Skipped) -> dict[str, str]:
    """In words, by partition."""
    shown = sorted(skipped.offsets.items())[:MOST_NAMED]
    told = {f"partition {partition}": f"{first} to {end - 1}" for partition, (first, end) in shown}
    more = len(skipped.offsets) - len(shown)
    return {**told, "further partitions": str(more)} if more else told
