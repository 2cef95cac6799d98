"""What users see of a destination and of a pipeline over HTTP, from the registry and what the others said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from services.control.model.lifecycle import Registered
from services.control.store.audit_log import RegistryRebuilt
from services.control.view.frontier import FrontierReport, Published, Trusted, of
from services.control.view.lake_health import KnownHealth
from services.control.view.observed_state import ObservedLife
from services.control.view.pipeline_retention import PipelineRetention, warning
from services.control.view.topic_lag import TopicLag, topic_lag
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import CommitPath, DesiredState, Problem, Progress
from shared.contracts.projection import project
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.reports import Lagging
from shared.runtime.backoff import delay_s

State = Literal["seeding", "running", "paused", "stopped", "parked", "removing"]


OFF: frozenset[State] = frozenset({"paused", "stopped", "removing"})
"""These are not expected to be exact."""

MOVING: frozenset[State] = frozenset({"seeding", "running"})
"""Those are tried again by themselves."""


class ErrorShown(Problem):
    """Why a destination does not go on. ``since``: when it was met first, in a row."""

    model_config = ConfigDict(extra="ignore")

    since: datetime
    attempts: int | None = None
    """Failed tries in a row, as its reader counts them; null where no reader says."""
    next_try_at: datetime | None = None
    """The earliest time of the next try; null while it is being tried, and while it is parked."""


EXAMPLE: dict[str, Any] = {
    "id": "quacksworth-lake", "pipeline": "events", "routing_value": "quacksworth", "state": "parked", "generation": 1,
    "position": 15, "known_through": 15, "source_snapshot": 17, "lag_snapshots": 2, "lag_seconds": 4.5,
    "rows_applied": 1200, "last_applied_at": "2026-01-01T00:00:00Z", "commit": "extension",
    "commit_reason": "schema_change", "managed_by": "api",
    "notice": "another layout is declared and holds from the next reseed on: partitioned by year(ts)",
    "topic": {
        "lag_records": 2,
        "partitions": [{"partition": 0, "head": 17, "position": 15, "lag_records": 2, "lag_seconds": 4.5}],
    },
    "error": {
        "type": "access_denied", "message": "the catalog refused the login", "hint": "check the role and its password",
        "retryable": False, "since": "2026-01-01T00:00:05Z", "attempts": 3, "next_try_at": None,
    },
}  # fmt: skip
"""A status, for OpenAPI."""


class Status(BaseModel):
    """A destination as it stands. ``position`` and ``known_through`` are source snapshots, null before a seed."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: str
    pipeline: str
    routing_value: str
    state: State
    generation: int
    position: int | None
    known_through: int | None
    """Up to where it is known to be exact."""
    source_snapshot: int | None
    """The source's head as a reader last saw it; null before any reader did."""
    lag_snapshots: int | None
    """Source snapshots after ``known_through``; null while one of the two is not known, or its reader is silent."""
    lag_seconds: float | None
    """Age of the oldest source snapshot with an unapplied change. Null while it is unknown: no reader has reported it
    yet or for a while, the destination was never reached, or its cursor was not read."""
    rows_applied: int
    last_applied_at: datetime | None
    commit: CommitPath | None = None
    """Who made the commit of ``position``: Viaduck itself (``direct``) or DuckLake's extension. Null where control has
    not heard it."""
    commit_reason: str | None = None
    """Why DuckLake's extension made it, where Viaduck would have otherwise."""
    managed_by: Literal["file", "api"]
    notice: str | None = None
    """What is declared of it and does not hold yet, and the action after which it does, or what its table could not be
    given of the source's NOT NULL, defaults and comments; work goes on regardless."""
    topic: TopicLag | None = None
    """How far it is behind its topic, by partition; null where the source is a lake, and before a reader saw it."""
    error: ErrorShown | None


class FrontierStatus(BaseModel):
    """How far the readers have polled: the values of the reader that is furthest behind."""

    head: int
    cycle: int
    at: datetime
    error: Problem | None
    notice: str | None = None
    """Why the source is expensive to read, and the statement that corrects it; work goes on regardless."""
    looked_at: datetime | None = None
    """When the source was last looked at with success; null where it never was."""
    overdue: bool = False
    """The last poll is too old: lags are unknown."""


class PipelineStatus(BaseModel):
    """A pipeline as a whole."""

    name: str
    source_snapshot: int | None
    settled: bool
    """Nothing is in flight, waiting to be planned or unprobed, by readers that know of every destination."""
    caught_up: bool
    """Every destination is known to be exact at the source's head, but for those that an operator switched off."""
    frontier: FrontierStatus | None
    refused: list[str]
    """What the source says against its file; while there is something, nothing of the file is in force."""
    destinations: dict[str, int]
    """How many there are in each state, and the ``total``."""
    retention_warning: str | None = None
    """Destinations that have less than a tenth of the source's history left; null where none has."""


class StatusSummary(NamedTuple):
    """The part of a status that filters, sorting and a pipeline's summary need.

    Thousands are created for each such list, so it is cheap.
    """

    state: State
    position: int | None
    lag_seconds: float | None
    trouble: str | None
    """The type of its error."""
    exact: bool
    """Known to be exact at the source's head, or switched off."""

    @property
    def failing(self) -> bool:
        """It has an error, and is tried again by itself."""
        return self.trouble is not None and self.state in MOVING


@dataclass(frozen=True)
class View:
    """Everything that control knows, at one moment."""

    pipeline: str
    in_force: bool = True
    """The file as it is now has been taken over; while it has not, destinations may be missing."""
    refused: tuple[str, ...] = ()
    """Mistakes of the file that only the source shows."""
    rebuilt: RegistryRebuilt | None = None
    destinations: Mapping[str, Registered] = field(default_factory=dict)
    """By id; removed ones left out."""
    seen: Mapping[str, ObservedLife] = field(default_factory=dict)
    published: Published = field(default_factory=Published)
    newest: tuple[FrontierReport, ...] = ()
    trusted: tuple[Trusted, ...] = ()
    appliers: Mapping[str, datetime] = field(default_factory=dict)
    """When each answered last."""
    unsure: frozenset[str] = frozenset()
    """Readers whose last report no longer bounds any lag."""
    health: Mapping[str, KnownHealth] = field(default_factory=dict)
    source_health: KnownHealth | None = None
    upkept: Mapping[str, Progress] = field(default_factory=dict)
    """The last answer to an ordered upkeep of each destination."""
    retention: PipelineRetention | None = None
    """None before control's first look at the source's history."""

    def health_of(self, destination: str) -> KnownHealth | None:
        """What the last looks at a destination's lake in its present life came to; None before the first."""
        known, held = self.health.get(destination), self.destinations.get(destination)
        return known if known is not None and held is not None and known.generation == held.generation else None

    @cached_property
    def source_snapshot(self) -> int | None:
        """The source's head as reported by readers; a reader that has just started has not polled yet."""
        heads = [report.head for report in self.newest]
        if not heads:
            return None
        return max([*heads, *(seen.position for seen in self.seen.values() if seen.position is not None)])

    @cached_property
    def looked_at(self) -> datetime | None:
        """When its source was last looked at with success, by the reader that did so last."""
        return max((report.looked_at for report in self.newest if report.looked_at is not None), default=None)

    @cached_property
    def standings(self) -> Mapping[str, StatusSummary]:
        """Of every destination."""
        head = self.source_snapshot
        return {name: _standing(self, name, held, head) for name, held in self.destinations.items()}


def status(view: View, destination: str) -> Status:
    """Raises ``KeyError`` for a destination that there is none of."""
    held = view.destinations[destination]
    seen = _of_this_life(view.seen.get(destination), held)
    trusted = of(view.trusted, destination, held.generation)
    position = _snapshot(None if seen is None else seen.position)
    known = _known_through(seen, trusted, destination)
    head = view.source_snapshot
    return Status(
        id=destination,
        pipeline=view.pipeline,
        routing_value=held.declared.routing_value,
        state=_state(held, seen, known),
        generation=held.generation,
        position=position,
        known_through=known,
        source_snapshot=head,
        lag_snapshots=_lag_snapshots(view, trusted, head, known),
        lag_seconds=_lag_seconds(view, trusted, destination, known),
        rows_applied=0 if seen is None or seen.rows_applied is None else seen.rows_applied,
        last_applied_at=None if seen is None else seen.last_applied_at,
        commit=None if seen is None else seen.commit,
        commit_reason=None if seen is None else seen.commit_reason,
        managed_by=held.managed_by,
        notice=_notice(held),
        topic=None if trusted is None else topic_lag(trusted.report, seen, unsure=_is_unsure(view, trusted)),
        error=_error(seen, held, None if trusted is None else trusted.report.lagging.get(destination)),
    )


def seen_of(view: View, destination: str) -> ObservedLife | None:
    """What was said of a destination in its present life; None while nothing was."""
    return _of_this_life(view.seen.get(destination), view.destinations[destination])


def known_through_of(view: View, destination: str) -> int | None:
    """Up to where a destination is known to be exact; None before its first seed."""
    trusted = of(view.trusted, destination, view.destinations[destination].generation)
    return _known_through(seen_of(view, destination), trusted, destination)


def rows_through_of(view: View, destination: str) -> int | None:
    """The same of its rows alone: from there on it can go on, whatever has become of the source's columns since."""
    trusted = of(view.trusted, destination, view.destinations[destination].generation)
    rows = NOT_SEEDED if trusted is None else trusted.rows_through(destination)
    return _furthest(seen_of(view, destination), rows)


def pipeline_status(view: View) -> PipelineStatus:
    standings = view.standings.values()
    states: Counter[str] = Counter(each.state for each in standings)
    responsible = _responsible(view)
    return PipelineStatus(
        name=view.pipeline,
        source_snapshot=view.source_snapshot,
        settled=responsible is not None and all(report.settled for report in responsible),
        caught_up=responsible is not None and all(each.exact for each in standings),
        frontier=_frontier(responsible or view.newest),
        refused=list(view.refused),
        destinations={**states, "total": len(standings)},
        retention_warning=warning(view.retention),
    )


def _responsible(view: View) -> tuple[FrontierReport, ...] | None:
    """The readers that are responsible for some destination; None if a destination has none, or has a silent one.

    Destinations of the file that are not in the registry yet have none either. An instance that has ended leaves its
    last frontier behind; the newer frontier of its successor replaces it.
    """
    if not view.in_force:
        return None
    up_to_date = tuple(
        each
        for each in view.trusted
        if each.report in view.newest and each.report.knows(view.published) and not _is_unsure(view, each)
    )
    if not view.destinations:
        return tuple(each.report for each in up_to_date) or None
    found: dict[str, FrontierReport] = {}
    for held in view.destinations.values():
        trusted = of(up_to_date, held.id, held.generation)
        if trusted is None:
            return None
        found[trusted.report.instance] = trusted.report
    return tuple(found.values())


def _frontier(reports: Iterable[FrontierReport]) -> FrontierStatus | None:
    last = min(reports, key=lambda report: (report.head, report.at), default=None)
    return None if last is None else project(FrontierStatus, last)


def _standing(view: View, destination: str, held: Registered, head: int | None) -> StatusSummary:
    seen = _of_this_life(view.seen.get(destination), held)
    trusted = of(view.trusted, destination, held.generation)
    known = _known_through(seen, trusted, destination)
    state = _state(held, seen, known)
    complaint = _complaint(seen, held)
    return StatusSummary(
        state,
        None if seen is None else _snapshot(seen.position),
        _lag_seconds(view, trusted, destination, known),
        None if complaint is None else complaint.type,
        state in OFF or (not _is_unsure(view, trusted) and _is_exact(trusted, known, head, destination)),
    )


def _is_exact(trusted: Trusted | None, known: int | None, head: int | None, destination: str) -> bool:
    if trusted is None or known is None or head is None:
        return False
    return known >= head and destination not in trusted.report.lagging


def _of_this_life(seen: ObservedLife | None, held: Registered) -> ObservedLife | None:
    return seen if seen is not None and seen.generation == held.generation else None


def _known_through(seen: ObservedLife | None, trusted: Trusted | None, destination: str) -> int | None:
    return _furthest(seen, NOT_SEEDED if trusted is None else trusted.known_through(destination))


def _furthest(seen: ObservedLife | None, known: int) -> int | None:
    for said in () if seen is None else (seen.position, seen.through):
        if said is not None and said > known:
            known = said
    return _snapshot(known)


def _snapshot(position: int | None) -> int | None:
    """-1, the position before the first seed, is no snapshot."""
    return None if position is None or position < 0 else position


def _state(held: Registered, seen: ObservedLife | None, known_through: int | None) -> State:
    if held.removing:
        return "removing"
    if held.desired is not DesiredState.RUNNING:
        return "paused" if held.desired is DesiredState.PAUSED else "stopped"
    if held.declared.damage is not None and held.is_damaged:
        return "parked"
    if seen is not None and seen.parked and not _is_outdated(seen, held):
        return "parked"
    return "seeding" if known_through is None else "running"


def _is_outdated(seen: ObservedLife, held: Registered) -> bool:
    """Whether an operator touched the destination after its last answer: what it complained of may be gone.

    Two clocks are compared here, for display only: the reader decides by the revision itself.
    """
    return seen.at < held.revision.at


def _error(seen: ObservedLife | None, held: Registered, lagging: Lagging | None) -> ErrorShown | None:
    damage, complaint = held.declared.damage, _complaint(seen, held)
    if damage is not None and held.is_damaged:
        return ErrorShown(**damage.problem.model_dump(), since=damage.at)
    if seen is None or complaint is None or seen.since is None:
        return None
    attempts = None if lagging is None else lagging.attempts
    return ErrorShown(
        **complaint.model_dump(), since=seen.since, attempts=attempts, next_try_at=_next_try_at(seen, held, lagging)
    )


def _notice(held: Registered) -> str | None:
    wanted, said = held.declared.next_layout, list[str]()
    if wanted is not None:
        said.append(f"another layout is declared and holds from the next reseed on: {wanted.text}")
    if held.declared.evolution is EvolutionPolicy.FOLLOW:
        said += held.declared.left
    return "; ".join(said) or None


def _next_try_at(seen: ObservedLife, held: Registered, lagging: Lagging | None) -> datetime | None:
    """Two clocks are compared here, for display only."""
    waits = lagging is not None and lagging.attempts > 0 and not lagging.in_flight
    if lagging is None or not waits or seen.parked or held.desired is not DesiredState.RUNNING:
        return None
    return seen.at + timedelta(seconds=delay_s(lagging.attempts, 0.0))


def _complaint(seen: ObservedLife | None, held: Registered) -> Problem | None:
    """What upkeep damaged stays so, whatever was heard since."""
    if held.declared.damage is not None and held.is_damaged:
        return held.declared.damage.problem
    if seen is None:
        return None
    return None if seen.error is None or _is_outdated(seen, held) else seen.error


def _is_unsure(view: View, trusted: Trusted | None) -> bool:
    """Whether what a reader said last may be long past."""
    return trusted is not None and trusted.report.instance in view.unsure


def _lag_snapshots(view: View, trusted: Trusted | None, head: int | None, known: int | None) -> int | None:
    """Null while the reader is silent: the source's head is unknown then, so 0 would be wrong."""
    if head is None or known is None or _is_unsure(view, trusted):
        return None
    return max(0, head - known)


def _lag_seconds(view: View, trusted: Trusted | None, destination: str, known_through: int | None) -> float | None:
    """Null if the destination was never reached, the reader is silent, or it knows of other destinations than control
    has published: the lag is unknown then, so 0 would be wrong."""
    if trusted is None or _is_unsure(view, trusted):
        return None
    lagging = trusted.report.lagging.get(destination)
    if lagging is None:
        return 0.0
    return (lagging.lag_seconds or None) if known_through is None else lagging.lag_seconds
