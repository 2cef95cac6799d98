"""Which snapshots of the source the destinations still need, and so how far it may be expired.

==========================================  ===========================================================================
a destination of the registry               needs the source from
==========================================  ===========================================================================
whose cursor was read                       its stored position: the next range begins there
rewound, and not begun                      the snapshot to which it was rewound
to be replayed, and not begun               the oldest snapshot
to be seeded at the head, and waiting       a little before its last answer: a running seed began later
to be seeded at the head, and switched off  nothing
being removed, or parked for a lost history nothing
of whose cursor nothing was ever heard      unknown: then nothing may be expired
==========================================  ===========================================================================

Positions only grow within a generation, so an old answer is a safe one. A position that is no longer retained is
replaced by how far the destination's rows are known to be exact; where that is not retained either, its history is
lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from services.control.model.lifecycle import Registered
from services.control.view.destination_status import MOVING, State, View, rows_through_of, seen_of
from services.control.view.observed_state import CLOCKS_DIFFER, ObservedLife
from shared.contracts.messages import SeedMode
from shared.lake.upkeep.retained import LakeSnapshot, Retained

NEAR = 0.1
"""The share of the history below which a destination is warned of."""


@dataclass(frozen=True)
class Need:
    """What one destination needs: one of the last three, or unknown."""

    destination: str
    state: State
    snapshot: int | None = None
    oldest: bool = False
    since: datetime | None = None
    """A seed that may be running reads no snapshot that is older than this moment."""

    @property
    def is_known(self) -> bool:
        return self.snapshot is not None or self.oldest or self.since is not None


@dataclass(frozen=True)
class HeldSnapshot:
    """A need, and the snapshot that it comes to."""

    destination: str
    state: State
    snapshot: int
    is_fixed: bool = True
    """Whether it still needs this very snapshot once that has become old; a seed may begin at a later one."""


def needs(view: View) -> Iterator[Need]:
    """Of each destination that needs something of the source."""
    for name, held in view.destinations.items():
        state = view.standings[name].state
        need = None if state == "removing" else _need(name, held, state, seen_of(view, name))
        if need is not None:
            yield need


def _need(name: str, held: Registered, state: State, seen: ObservedLife | None) -> Need | None:
    if seen is not None and seen.parked and seen.error is not None and seen.error.type == "history_expired":
        return None
    if seen is not None and seen.position is not None and seen.position >= 0:
        return Need(name, state, seen.position)
    if held.seed_at is not None:
        return Need(name, state, held.seed_at)
    if held.declared.seed_mode is SeedMode.REPLAY:
        return Need(name, state, oldest=True)
    if seen is None or seen.position is None:
        return Need(name, state)
    return Need(name, state, since=seen.at - CLOCKS_DIFFER) if state in MOVING else None


def earliest_seed(view: View) -> datetime | None:
    """The moment before which no running seed began; None where none can be."""
    return min((each.since for each in needs(view) if each.since is not None), default=None)


def holds(view: View, retained: Retained, begun: LakeSnapshot | None) -> list[HeldSnapshot]:
    """What each destination keeps from being expired, as far as that is known; the lowest first.

    ``begun``: the snapshot that was the head at ``earliest_seed``, as control's look found it.
    """
    found = ((each, _snapshot(view, each, retained, begun)) for each in needs(view))
    held = [
        HeldSnapshot(need.destination, need.state, snapshot, is_fixed=need.snapshot is not None)
        for need, snapshot in found
        if snapshot is not None
    ]
    return sorted(held, key=lambda each: (each.snapshot, each.destination))


def _snapshot(view: View, need: Need, retained: Retained, begun: LakeSnapshot | None) -> int | None:
    if need.oldest:
        return retained.oldest
    if need.since is not None:
        return retained.oldest if begun is None or begun.at > need.since else begun.id
    if need.snapshot is None or need.snapshot >= retained.oldest:
        return need.snapshot
    rows = rows_through_of(view, need.destination)
    return rows if rows is not None and rows >= retained.oldest else None


def near_expiry(held: list[HeldSnapshot], retained: Retained) -> tuple[str, ...]:
    """Destinations with less than ``NEAR`` of the history left. While the first snapshot is there, nothing expires."""
    if retained.oldest == 0:
        return ()
    limit = retained.oldest + NEAR * retained.length
    return tuple(each.destination for each in held if each.is_fixed and each.snapshot < limit)
