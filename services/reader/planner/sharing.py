"""Which of the readers that share a pipeline by explicit lists counts the rows that have no destination.

None of them knows the others' lists from its configuration, but each hears the others' frontiers: of those that were
heard lately, the one whose instance sorts first counts.
"""

from __future__ import annotations

from datetime import datetime

from shared.contracts.reports import Frontier, Share

SILENT_AFTER_S = 30.0
"""Readers publish a frontier every 5 s; a reader that was silent for this long no longer counts."""


class Sharing:
    """Used by one thread. ``now_s`` is monotonic time."""

    def __init__(self, instance: str, share: Share) -> None:
        self._instance = instance
        self._share = share
        self._heard: dict[str, float] = {}

    def heard(self, frontier: Frontier, now_s: float, now: datetime | None = None) -> None:
        """Take in another reader's frontier. ``now``: the wall clock, if the message may be old."""
        age_s = 0.0 if now is None else max(0.0, (now - frontier.at).total_seconds())
        if frontier.instance < self._instance and frontier.share.mode == "explicit" and age_s < SILENT_AFTER_S:
            self._heard[frontier.instance] = now_s - age_s

    def counts(self, now_s: float) -> bool:
        """Whether this reader counts rows that have no destination."""
        if self._share.mode == "hash":
            return self._share.ordinal == 0
        self._heard = {name: at_s for name, at_s in self._heard.items() if now_s - at_s < SILENT_AFTER_S}
        return self._share.mode == "all" or not self._heard
