"""What may be in flight at once, and who goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from services.reader.choose import Draft, Rules
from services.reader.tracked import InFlight, Tracked
from shared.messages import ItemKind

MOST_UPKEEPS = 2
"""Items of upkeep in flight at once: whoever waits for its turn takes changes meanwhile, so it is late for nothing."""

MOST_PROBES = 1_000
"""Probes in flight at once: at a start with ten thousand destinations real work must find its way between them."""

MOST_SEEDS = 200
"""Seeds in flight at once, of which those that failed before are half at most: an applier answers for all seeds of a
job together, and one that nobody answers for in time is sent again."""

RANK = {
    ItemKind.PROBE: 0,
    ItemKind.ADVANCE: 1,
    ItemKind.DROP: 1,
    ItemKind.UPKEEP: 2,
    ItemKind.CHANGES: 2,
    ItemKind.SEED: 3,
}

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Candidate = tuple[Tracked, Draft]


class Hold:
    """The bounds on rows and seeds in flight over all destinations.

    Items of destinations that failed before may take half of each at most: whoever is in trouble delays nobody else.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.rows = 0
        self._retried_rows = 0
        self._probes = self._seeds = self._retried_seeds = 0
        self.upkeeps = 0

    def admit(self, candidates: Iterable[Candidate], send: Callable[[Candidate], None]) -> list[Candidate]:
        """``send`` those that may go now, and return the others: probes first, then changes by age, then seeds.

        Nobody overtakes one that has to wait for room; only whoever failed before waits apart from the others.
        ``send`` must ``take``.
        """
        waiting: list[Candidate] = []
        full: set[bool] = set()
        for candidate in sorted(candidates, key=_order):
            tracked, draft = candidate
            is_probe, is_retry = draft.kind is ItemKind.PROBE, tracked.attempts > 0
            if self._fits(tracked, draft) and (is_probe or not full & {False, is_retry}):
                send(candidate)
                continue
            waiting.append(candidate)
            if not is_probe:
                full.add(is_retry)
        return waiting

    def charge(self, tracked: Tracked, draft: Draft) -> int:
        """What an item takes of the bound; a range that nobody counted takes a segment."""
        if draft.kind is ItemKind.PROBE:
            return 0
        rows = self._rules.segment_rows if draft.rows is None else draft.rows
        return min(rows, self._rules.max_rows_in_flight // 2) if tracked.attempts else rows

    def take(self, item: str, tracked: Tracked, draft: Draft, until_s: float) -> InFlight:
        """Make room for an item that goes now."""
        charge, is_retry = self.charge(tracked, draft), tracked.attempts > 0
        taken = InFlight(item, draft.kind, draft.expected, draft.through, until_s, charge, is_retry)
        self._add(taken, 1)
        return taken

    def give_back(self, taken: InFlight) -> None:
        self._add(taken, -1)

    def _add(self, taken: InFlight, sign: int) -> None:
        self.rows += sign * taken.charge
        self._retried_rows += sign * taken.charge * taken.is_retry
        self._probes += sign * (taken.kind is ItemKind.PROBE)
        self._seeds += sign * (taken.kind is ItemKind.SEED)
        self._retried_seeds += sign * (taken.kind is ItemKind.SEED and taken.is_retry)
        self.upkeeps += sign * (taken.kind is ItemKind.UPKEEP)

    def _fits(self, tracked: Tracked, draft: Draft) -> bool:
        """Whether the item may go now. A single one always may, or what is larger than the bound would never go."""
        if draft.kind is ItemKind.PROBE:
            return self._probes < MOST_PROBES
        if draft.kind is ItemKind.SEED and not self._has_place_for_seed(tracked):
            return False
        charge, most = self.charge(tracked, draft), self._rules.max_rows_in_flight
        if charge == 0 or self.rows == 0:
            return True
        fits = self.rows + charge <= most
        return fits and (not tracked.attempts or self._retried_rows + charge <= most // 2)

    def _has_place_for_seed(self, tracked: Tracked) -> bool:
        return self._seeds < MOST_SEEDS and (not tracked.attempts or self._retried_seeds < MOST_SEEDS // 2)


def _order(candidate: Candidate) -> tuple[int, bool, datetime, str]:
    tracked, draft = candidate
    return RANK[draft.kind], tracked.attempts > 0, tracked.waits_since or _LONG_AGO, tracked.name
