"""The second oracle: is what a deployment shows of itself true? It judges words, as ``oracle`` judges rows.

A ``Look`` is what an operator would see at one moment, and what the lakes themselves said right after it. Nothing may
be shown as further than its lake is, and nothing as caught up that has been behind for longer than Viaduck allows
itself to be wrong: its own bounds, counted by the clock of whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.control.view.frontier import UNHEARD_AFTER_S
from services.reader.messaging.status_reporter import AT_LEAST_EVERY_S
from tests.world.holdings import Holdings

OLD_AFTER_S = UNHEARD_AFTER_S + AT_LEAST_EVERY_S
"""For so long control may go on with what a reader said last, and a reader with what it told last."""

OFF = ("paused", "stopped", "removing")
"""States in which nobody expects a destination to be at the head."""

Gauges = Mapping[tuple[str, str], float]
"""Of ``/metrics``: the value by metric and destination; what concerns no destination has an empty one."""

LAST, SNAPSHOTS, SECONDS = (
    f"viaduck_dest_{what}" for what in ("last_snapshot_id", "lag_snapshots", "lag_seconds")
)  # fmt: skip
HEAD = "viaduck_source_snapshot_id"


@dataclass(frozen=True)
class Held:
    """What a destination's lake says of itself: the newest commit that moved it."""

    generation: int
    through: int


@dataclass(frozen=True)
class Answer:
    """Of a ``/readyz``."""

    code: int
    checks: Mapping[str, str | None]


@dataclass(frozen=True)
class Look:
    """What was shown between two moments; None, or missing, is what did not answer."""

    asked_s: float
    answered_s: float
    statuses: Sequence[Mapping[str, Any]] | None = None
    pipeline: Mapping[str, Any] | None = None
    gauges: Gauges = field(default_factory=dict)
    ready: Mapping[str, Answer | None] = field(default_factory=dict)
    """By service; None where it did not answer, missing where nobody asked."""
    before: Mapping[str, Held | None] = field(default_factory=dict)
    held: Mapping[str, Held | None] = field(default_factory=dict)
    """By destination, read before and after; None where no life is in its lake, missing where it could not be read."""


@dataclass(frozen=True)
class Trouble:
    """Something that a service must not hide: it has ``shown_by``'s ``/readyz`` say so once it lasted ``within_s``."""

    what: str
    shown_by: str
    began_s: float
    ended_s: float = float("inf")
    within_s: float = 0.0

    def covers(self, look: Look) -> bool:
        return self.began_s + self.within_s <= look.asked_s and look.answered_s <= self.ended_s


@dataclass
class Past:
    """What is true: of each destination its due, and between which moments each snapshot of the source was made."""

    holdings: Mapping[str, Holdings]
    made: dict[int, tuple[float, float]] = field(default_factory=dict)

    def head_at(self, moment_s: float) -> int:
        """The newest snapshot that was there for certain; 0 before any was made under our eyes."""
        return max((snapshot for snapshot, (_, done_s) in self.made.items() if done_s <= moment_s), default=0)

    def may_be_at(self, moment_s: float) -> int:
        """The newest snapshot that may have been there."""
        return max((snapshot for snapshot, (began_s, _) in self.made.items() if began_s <= moment_s), default=0)

    def behind_s(self, id: str, held: Held, moment_s: float) -> float:
        """For how long, at least, a lake has lacked a change; 0 where it lacks none, or nobody can tell."""
        missed = self.holdings[id].first_lack(held.through, self.head_at(moment_s))
        return moment_s - self.made[missed][1] if missed in self.made else 0.0


def lies(look: Look, past: Past, troubles: Iterable[Trouble] = ()) -> list[str]:
    """Everything that a look shows and that is not so; nothing means that it can be believed."""
    found = [*_unready(look, troubles)]
    for status in look.statuses or ():
        if status["id"] in past.holdings:
            found += [f"{status['id']} is shown as {_shown(status)}: {why}" for why in _of_one(status, look, past)]
    return [*found, *_of_pipeline(look, past), *_of_gauges(look, past)]


def contradictions(
    code: int, statuses: Sequence[Mapping[str, Any]], parked: Iterable[str] = (), *, unusable: bool = False
) -> list[str]:
    """What is wrong with an exit code of ``viaduck status`` beside its lines, and beside who is ``parked`` in truth.

    ``unusable``: control does not serve one of the pipelines, for a reason that it knows.
    """
    shown = {status["id"] for status in statuses if status["state"] == "parked"}
    wanted = 1 if shown or unusable else 0
    found = [] if code == wanted else [f"`viaduck status` ends with {code}, and shows {sorted(shown)} as parked"]
    hidden = sorted(set(parked) - shown)
    return found + ([f"parked, and `viaduck status` shows something else: {hidden}"] if hidden else [])


def _shown(status: Mapping[str, Any]) -> str:
    said = ("state", "generation", "position", "known_through", "lag_snapshots", "lag_seconds")
    return ", ".join(f"{name} {status[name]}" for name in said)


def _of_one(status: Mapping[str, Any], look: Look, past: Past) -> Iterator[str]:
    known, seen, lag = status["known_through"], status["source_snapshot"], status["lag_snapshots"]
    if lag != (None if seen is None or known is None else max(0, seen - known)) and lag is not None:
        yield f"the lag is not what lies between {known} and {seen}"
    if status["state"] == "running" and known is None:
        yield "nobody knows it to be exact anywhere"
    if seen is not None and seen > (most := past.may_be_at(look.answered_s)) > 0:
        yield f"the source's head is {most}, not {seen}"
    if status["state"] != "removing":
        yield from _beside_its_lake(status, look, past)


def _beside_its_lake(status: Mapping[str, Any], look: Look, past: Past) -> Iterator[str]:
    id, held = status["id"], look.held.get(status["id"])  # noqa: A001
    if id not in look.held or id not in look.before or not _one_life(look.before[id], held):
        return
    if held is None or held.generation < status["generation"]:
        if status["known_through"] is not None or status["position"] is not None or status["lag_seconds"] == 0:
            yield f"no life of generation {status['generation']} is in its lake, but {held}"
    elif held.generation == status["generation"]:
        yield from _beside(status, held, look, past)


def _one_life(before: Held | None, after: Held | None) -> bool:
    return (before and before.generation) == (after and after.generation)


def _beside(status: Mapping[str, Any], held: Held, look: Look, past: Past) -> Iterator[str]:
    id, known, position = status["id"], status["known_through"], status["position"]  # noqa: A001
    if position is not None and position > held.through:
        yield f"its cursor was at {held.through} even later"
    if known is not None and (missed := _missed(past.holdings[id], held, known)) is not None:
        yield f"its lake was at {held.through} even later, and snapshot {missed} changed its rows, or the columns"
    behind_s = past.behind_s(id, held, look.asked_s)
    if _is_late(status["lag_seconds"], behind_s):
        yield f"it had lacked a change for {behind_s:.0f} s"
    elif status["lag_snapshots"] == 0 and behind_s > OLD_AFTER_S:
        yield f"no snapshot behind, and it had lacked a change for {behind_s:.0f} s"


def _missed(due: Holdings, held: Held, through: int) -> int | None:
    """A change that a lake had not, though it is said to be exact ``through``."""
    head = due.truth.head
    return head + 1 if through > head else due.first_lack(held.through, through)


def _is_late(lag_s: float | None, behind_s: float) -> bool:
    """Whether a figure is older than any may be; what is unknown is no lie."""
    return lag_s is not None and behind_s - lag_s > OLD_AFTER_S


def _of_pipeline(look: Look, past: Past) -> Iterator[str]:
    found = look.pipeline
    if found is None or not (found["caught_up"] or found["settled"]):
        return
    for status in look.statuses or ():
        behind_s = _known_behind_s(status, look, past)
        if behind_s <= OLD_AFTER_S or status["state"] in OFF:
            continue
        if found["caught_up"]:
            yield f"the pipeline is shown as caught up: {status['id']} had lacked a change for {behind_s:.0f} s"
        elif status["state"] != "parked" and status["error"] is None:
            yield f"the pipeline is shown as settled: {status['id']} had lacked a change for {behind_s:.0f} s"


def _known_behind_s(status: Mapping[str, Any], look: Look, past: Past) -> float:
    held = look.held.get(status["id"])
    if held is None or status["id"] not in past.holdings:
        return 0.0
    return past.behind_s(status["id"], held, look.asked_s)


def _of_gauges(look: Look, past: Past) -> Iterator[str]:
    shown, most = look.gauges.get((HEAD, "")), past.may_be_at(look.answered_s)
    if shown is not None and shown > most > 0:
        yield f"{HEAD} is {shown:.0f}, and the source's head {most}"
    for id, generation in _listed(look).items():  # noqa: A001
        held = look.held.get(id)
        if id not in past.holdings or held is None or not _one_life(look.before.get(id), held):
            continue
        if held.generation != generation:
            continue  # figures of a life that is still to begin: since when it waits for its seed
        position, behind_s = look.gauges.get((LAST, id)), past.behind_s(id, held, look.asked_s)
        if position is not None and position > held.through:
            yield f"{LAST} of {id} is {position:.0f}, and its cursor was at {held.through} even later"
        if _is_late(look.gauges.get((SECONDS, id)), behind_s):
            yield f"{SECONDS} of {id} is {look.gauges[SECONDS, id]:.1f}: it had lacked a change for {behind_s:.0f} s"
        if look.gauges.get((SNAPSHOTS, id)) == 0 and behind_s > OLD_AFTER_S:
            yield f"{SNAPSHOTS} of {id} is 0: it had lacked a change for {behind_s:.0f} s"


def _listed(look: Look) -> dict[str, int]:
    """The generation of each destination that is shown."""
    return {status["id"]: status["generation"] for status in look.statuses or ()}


def _unready(look: Look, troubles: Iterable[Trouble]) -> Iterator[str]:
    for service, answer in look.ready.items():
        if answer is not None and (answer.code == 200) is any(answer.checks.values()):
            yield f"/readyz of {service} answers {answer.code} and says {dict(answer.checks)}"
    for trouble in troubles:
        answer = look.ready.get(trouble.shown_by)
        if answer is not None and answer.code == 200 and trouble.covers(look):
            lasted_s = look.asked_s - trouble.began_s
            yield f"/readyz of {trouble.shown_by} answers 200, and {trouble.what} for {lasted_s:.0f} s"
