"""Destinations, answers and frontiers for control's tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from services.control.model.lifecycle import Declared, Registered, Revision
from services.control.view.frontier import Published
from shared.contracts.digest import digest
from shared.contracts.messages import ItemKind, LakeRef, Outcome, Problem, Progress, SeedMode
from shared.contracts.reports import Frontier, Lagging
from shared.contracts.routed_by import RoutedBy

PIPELINE = "events"
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def declared(id: str = "a", **changes: Any) -> Declared:
    value = changes.pop("routing_value", f"value of {id}")
    lake = changes.pop("lake", LakeRef(catalog=f"sqlite:/lakes/{id}.sqlite"))
    identity = changes.pop("identity", f"identity of {lake.catalog or lake.catalog_env}")
    plain = Declared(id, value, lake, identity, "main", "events", SeedMode.SCAN, RoutedBy(field="company"))
    return replace(plain, **changes)


def revision(name: str = "1", seconds: float = 0.0) -> Revision:
    return Revision(name, at(seconds))


def registered(id: str = "a", **changes: Any) -> Registered:
    plain = Registered(changes.pop("declared", declared(id)), 1, revision(), "file")
    return replace(plain, **changes)


def by_id(registered: Iterable[Registered]) -> dict[str, Registered]:
    return {each.id: each for each in registered}


def published(held: Iterable[Registered]) -> Published:
    there = [each for each in held if not each.removed]
    return Published({each.id: each.generation for each in there}, {each.id: each.revision.id for each in there})


def progress(outcome: Outcome = Outcome.APPLIED, id: str = "a", seconds: float = 10.0, **changes: Any) -> Progress:
    fields = {"kind": ItemKind.CHANGES, "item": "item", "generation": 1, **changes}
    return Progress(pipeline=PIPELINE, destination=id, outcome=outcome, at=at(seconds), **fields)


def problem(type: str = "destination_unreachable", retryable: bool = True) -> Problem:
    return Problem(type=type, message=f"it is {type}", hint="do something", retryable=retryable)


def frontier(
    held: Iterable[Registered] = (),
    head: int = 10,
    lagging: Mapping[str, int] | None = None,
    **changes: Any,
) -> Frontier:
    """What a reader publishes that knows of ``held``; ``lagging``: up to where each is known to be exact."""
    versions = [(each.id, each.generation, each.revision.id) for each in held if not each.removed]
    fields: dict[str, Any] = {
        "instance": "viaduck-0",
        "cycle": 1,
        "page": 0,
        "pages": 1,
        "settled": True,
        "revision": digest(versions),
        "at": at(20),
        **changes,
    }
    behind = {name: Lagging(known_through=known, lag_seconds=2.5) for name, known in (lagging or {}).items()}
    return Frontier(pipeline=PIPELINE, head=head, lagging=behind, **fields)
