"""What was seen of a run, as a module for ``tla/Trace.tla``: values in, text out.

A trace is JSON lines, each one event; commits in the order of their destination's snapshots, an answer after whatever
was committed before it. ::

    {"event": "commit", "destination": "p/d", "kind": "changes", "generation": 1, "after": 4, "through": 7,
     "item": "…", "token": "…", "snapshot": 12, "path": "direct", "looked": 11}
                                                    what a stamped snapshot says (docs/reference/stamps.md)
    {"event": "sent", "destination": "p/d", "item": "…", "kind": "changes", "generation": 1, "expected": 4,
     "after": 4, "through": 7, "pinned": false}     a work item
    {"event": "answer", "destination": "p/d", "item": "…", "outcome": "gap", "generation": 1, "position": 5,
     "through": null, "since": 2}                   its answer

``snapshot`` is the commit's number in its lake, and may be missing. A commit without ``path`` is the extension's; one
of the direct path may tell which snapshot was the newest when the applier ``looked``.

``since`` is how many of its destination's commits had surely been there when the item was sent: none if nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from shared.contracts.ranges import NOT_SEEDED

UNKNOWN = -2
"""``Unknown`` of ``Fence.tla``: a position that nobody looked up."""


class Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    destination: str
    """pipeline/destination"""
    item: str


class Committed(Event):
    event: Literal["commit"] = "commit"
    kind: Literal["seed", "changes", "advance", "drop", "provision", "maintenance"]
    generation: int
    after: int
    through: int
    token: str
    snapshot: int | None = None
    path: Literal["direct", "extension"] = "extension"
    looked: int | None = None


class Sent(Event):
    event: Literal["sent"] = "sent"
    kind: ItemKind
    generation: int
    expected: int = NOT_SEEDED
    after: int = NOT_SEEDED
    through: int
    pinned: bool = False


class Answered(Event):
    event: Literal["answer"] = "answer"
    outcome: Outcome
    generation: int
    position: int | None = None
    through: int | None = None
    since: int = 0


Anything = Committed | Sent | Answered
EVENT: TypeAdapter[Anything] = TypeAdapter(Annotated[Anything, Field(discriminator="event")])


def sent(item: WorkItem) -> Sent:
    told = item.model_dump(include=Sent.model_fields.keys() - {"event", "destination"})
    return Sent(destination=item.key, **told)


def answered(progress: Progress, since: int = 0) -> Answered:
    told = progress.model_dump(include={"item", "outcome", "generation", "position", "through"})
    return Answered(destination=progress.key, since=since, **told)


def parse(lines: Iterable[str]) -> list[Anything]:
    """Events from JSON lines. Raises ``ValidationError``."""
    return [EVENT.validate_json(line) for line in lines if line.strip()]


def dump(events: Iterable[Anything]) -> str:
    return "".join(event.model_dump_json() + "\n" for event in events)


def module(traces: Iterable[Iterable[Anything]], name: str) -> str:
    """The TLA+ module ``name``, which gives ``Trace.tla`` its constant ``Logs``."""
    logs = ",\n".join(f"  <<\n{_log(list(events))}>>" for events in traces)
    return f"---- MODULE {name} ----\nEXTENDS Trace\nRecorded == <<\n{logs}>>\n====\n"


CONFIG = "SPECIFICATION Spec\nCONSTANT Logs <- Recorded\nINVARIANTS PositionsOnlyGrow Verdict\n"


def _log(events: Sequence[Anything]) -> str:
    work = _work(events)
    seen = [event for event in events if not isinstance(event, Sent)]
    return ",\n".join(f"    {_record(event, work.get((event.destination, event.item)))}" for event in seen)


def _work(events: Sequence[Anything]) -> Mapping[tuple[str, str], Sent]:
    """The items by their id. Raises ``ValueError`` where one id stands for two."""
    work: dict[tuple[str, str], Sent] = {}
    for event in events:
        if isinstance(event, Sent) and work.setdefault((event.destination, event.item), event) != event:
            raise ValueError(f"{event.item} was sent with different contents")
    return work


def _record(event: Anything, work: Sent | None) -> str:
    """An event, and the item behind it where that is known, in the words of the specification."""
    told = {"event": event.event} | _fields(event) | {"known": work is not None}
    behind = "" if work is None else f", work |-> [{_join(_fields(work))}]"
    return f"[{_join(told)}{behind}]"


def _fields(event: Anything) -> dict[str, Any]:
    told = event.model_dump(mode="json", exclude={"event"})
    return {"gen": told.pop("generation")} | told


def _join(fields: Mapping[str, object]) -> str:
    return ", ".join(f"{name} |-> {_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if value is None:
        return str(UNKNOWN)
    return str(value) if isinstance(value, int) else _text(str(value))


def _text(value: str) -> str:
    """A TLA+ string. Names are only compared, so any spelling that keeps different ones apart will do."""
    return f'"{quote(value)}"'
