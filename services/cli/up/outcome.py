"""When ``viaduck up --once`` has done what can be done, and what came of it: from what control says, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Status = Mapping[str, Any]
"""A destination's status as control answers it (docs/reference/rest-api.md)."""

SWITCHED_OFF = frozenset({"paused", "stopped", "removing"})

GRACE_S = 30.0
"""How long to wait for a moment without work in flight after all destinations have reached the head; a busy source may
never have one."""


@dataclass(frozen=True)
class ProgressSummary:
    """The progress of all destinations at one moment.

    ``head`` is the source's at the command's start, ``source_snapshot`` the head that the reader planned for.
    ``settled``: no work is in flight or due. ``fresh``: the reader has polled since the command started; a
    broker may still have the reports of an earlier run.
    """

    head: int
    source_snapshot: int | None
    settled: bool
    fresh: bool
    destinations: Sequence[Status]
    declared: frozenset[str] = frozenset()
    """Destinations of the file: control, too, takes a moment until it knows them."""

    @property
    def wanted(self) -> Sequence[Status]:
        return [status for status in self.destinations if status["state"] not in SWITCHED_OFF]

    @property
    def behind(self) -> Sequence[Status]:
        """Destinations that have not reached the head, or are parked wherever they are."""
        return [status for status in self.wanted if not self._reached(status)]

    @property
    def is_current(self) -> bool:
        """Whether it says anything about the head at all."""
        known = self.declared <= {status["id"] for status in self.destinations}
        return known and self.fresh and self.source_snapshot is not None and self.source_snapshot >= self.head

    @property
    def all_reached(self) -> bool:
        return self.is_current and not self.behind

    @property
    def given_up(self) -> bool:
        """All destinations that can move have moved, and at least one is not at the head."""
        return self.is_current and self.settled and bool(self.behind)

    def _reached(self, status: Status) -> bool:
        through = status["known_through"]
        return status["state"] != "parked" and through is not None and through >= self.head


@dataclass
class ExitVerdict:
    """Collects tallies until one decides: ``code`` is then the command's exit code."""

    reached_at: float | None = None

    def code(self, tally: ProgressSummary, now: float) -> int | None:
        if tally.given_up:
            return 1
        if not tally.all_reached:
            self.reached_at = None
            return None
        if self.reached_at is None:
            self.reached_at = now
        return 0 if tally.settled or now - self.reached_at >= GRACE_S else None


def reasons(behind: Sequence[Status]) -> list[str]:
    """One line for each destination that is not where it should be: what is wrong, and what an operator can do."""
    return [_reason(status) for status in behind]


def _reason(status: Status) -> str:
    error = status.get("error")
    where = f"{status['id']}: {status['state']} at {_at(status['known_through'])}"
    if not error:
        return where
    hint = f" ({error['hint']})" if error.get("hint") else ""
    return f"{where}: {error['type']}: {error['message']}{hint}"


def _at(known_through: int | None) -> str:
    return "no snapshot yet" if known_through is None or known_through < 0 else f"snapshot {known_through}"
