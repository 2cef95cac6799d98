"""Counts the records of a topic that no destination takes, as appliers find them; each of them once.

Every destination reads the topic for itself, and a range again after a failure, so most of what appliers tell is known
already. The reading of one destination is a chain of ranges, each of which begins where the last one ended: the chain
that was counted last goes on being counted. Where it breaks (its destination parks or is removed, an applier dies), one
that is further on takes its place, and what lies between the two is not counted: the count is never too high.
"""

from __future__ import annotations

from services.reader.source.unrouted_values import Among, RoutingContext
from shared.contracts.positions import Vector
from shared.contracts.reports import UnroutedRecords
from shared.runtime.metrics import Metrics

SILENT_AFTER_S = 10.0
"""For so long the chain that is counted is waited for, where another one is further on."""


class RecordTally:
    """Used by one thread. ``now_s`` is monotonic time."""

    def __init__(self, metrics: Metrics, routing: RoutingContext) -> None:
        self._metrics = metrics
        self._routing = routing
        self._topic = ""
        self._through: Vector | None = None
        """The end of the range that was counted last."""
        self._counted_s = 0.0

    def heard(self, found: UnroutedRecords, topic_id: str | None, now_s: float) -> None:
        """Take in a range of the topic that has this id now; one of another topic is ignored."""
        if found.topic_id != topic_id or not self._routing.counts_unrouted():
            return
        counted, mine = self._take(found, now_s), self._without_routed(found)
        if counted:
            self._metrics.unrouted_rows_total.inc(mine.rows)
        if self._routing.unknown is not None:
            self._routing.unknown.note_records(mine, counted=counted)

    def _take(self, found: UnroutedRecords, now_s: float) -> bool:
        """Whether none of its records was counted before; then they are."""
        after, through = Vector.parse(found.after_at), Vector.parse(found.through_at)
        if found.topic_id != self._topic:
            self._topic, self._through = found.topic_id, None
        if self._through not in (None, after):
            is_beyond = after.covers(self._through or Vector())
            if not is_beyond or now_s - self._counted_s < SILENT_AFTER_S:
                return False
        self._through, self._counted_s = through, now_s
        return True

    def _without_routed(self, found: UnroutedRecords) -> UnroutedRecords:
        """Without what is of destinations that the applier had not heard of."""
        among = Among(self._routing.routes.values())
        values = tuple(each for each in found.values if not among.has(each))
        known = sum(each.rows for each in found.values) - sum(each.rows for each in values)
        return found.model_copy(update={"values": values, "rows": max(0, found.rows - known)})
