"""Tells control which routing values have no destination: when that changed, and now and then again."""

from __future__ import annotations

from collections.abc import Collection

from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.source.unrouted_values import UnroutedValues
from shared.contracts.reports import Offered

PAUSE_S = 2.0
"""Between two offers that say something new."""

AGAIN_S = 60.0
"""An offer that still stands is made again: the last one may be lost, and control may think otherwise by now."""


class OfferPublisher:
    """Decides when it is time to offer, and offers."""

    def __init__(self, unknown: UnroutedValues, outlet: WorkPublisher) -> None:
        self._unknown = unknown
        self._outlet = outlet
        self._told: tuple[tuple[Offered, ...], bool] | None = None
        self._told_s = self._looked_s = float("-inf")

    def tell(self, routed: Collection[str], now_s: float) -> None:
        """Offer what has no destination, if it is time."""
        if not self._unknown.has_looked or now_s < self._looked_s + PAUSE_S:
            return
        self._looked_s = now_s
        now = self._unknown.offer(routed), self._unknown.more
        if now != self._told or (now[0] and now_s >= self._told_s + AGAIN_S):
            self._outlet.offer(*now)
            self._told, self._told_s = now, now_s

    def renewed(self) -> None:
        """Whatever was told is lost."""
        self._told = None
