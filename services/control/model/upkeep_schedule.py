"""When upkeep is due: once in ``every`` for each lake, within the hours that are set. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from datetime import UTC, datetime

from services.control.model.lifecycle import Registered


def is_within(now: datetime, hours: tuple[int, int] | None) -> bool:
    """``hours``: minutes since midnight, UTC; a span that ends before it begins goes over midnight."""
    if hours is None:
        return True
    at, (start, end) = now.astimezone(UTC), hours
    minute = 60 * at.hour + at.minute
    return start <= minute < end if start < end else minute >= start or minute < end


def due_lakes(
    wanted: Mapping[str, Registered],
    last: Mapping[str, datetime],
    now: datetime,
    every_s: float,
    busy: Collection[str],
) -> list[Registered]:
    """One destination of each lake that is due, those first whose last turn is longest ago.

    ``wanted``: those that may be asked. ``last``: when upkeep of a destination began by itself the last time.
    ``busy``: destinations that have upkeep now.
    """
    members: dict[Hashable, list[Registered]] = {}
    for name in sorted(wanted):
        members.setdefault(wanted[name].declared.lake_key, []).append(wanted[name])
    due: list[tuple[float, Registered]] = []
    for lake in members.values():
        ages = [(now - last[each.id]).total_seconds() for each in lake if each.id in last]
        age_s = min(ages, default=float("inf"))
        if age_s >= every_s and not any(each.id in busy for each in lake):
            due.append((age_s, lake[0]))
    return [each for _, each in sorted(due, key=lambda pair: (-pair[0], pair[1].id))]
