"""``viaduck status`` and ``viaduck destination list|show``: what control says, as a table or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from viaduck_client import Rejected

from services.cli.output.sanitize import cell
from services.cli.output.topic_lag import partitions_of, told
from services.cli.runtime.client import Control
from services.cli.runtime.console import console

Status = Mapping[str, Any]

COLOURS = {"running": "green", "seeding": "cyan", "parked": "red", "paused": "yellow", "stopped": "yellow"}


def list_all(control: Control, pipelines: Sequence[str], as_json: bool, **filters: str) -> int:
    """One line per destination. Returns the exit code: 1 if one is parked, or a pipeline can't be used."""
    found: list[Status] = []
    unusable: dict[str, Sequence[str]] = {}
    names = pipelines or control.pipelines()
    for name in names:
        try:
            found += control.destinations(name, **filters)
        except Rejected:
            unusable[name] = control.pipeline(name)["refused"]
            if not unusable[name]:
                raise
    if as_json:
        print_json(found)
    else:
        console().print(table_of(found) if found else "no destinations")
        if (partitions := partitions_of(found)) is not None:
            console().print(partitions)
        _print_notices(control, [name for name in names if name not in unusable])
    for name, reasons in unusable.items():
        console(stderr=True).print(cell(f"{name}: {'; '.join(reasons)}"))
    return 1 if unusable or any(status["state"] == "parked" for status in found) else 0


def _print_notices(control: Control, pipelines: Sequence[str]) -> None:
    """Why a source is expensive to read and what corrects it, and whose history is about to expire."""
    for name in pipelines:
        found = control.pipeline(name)
        for said in ((found["frontier"] or {}).get("notice"), found.get("retention_warning")):
            if said is not None:
                console(stderr=True).print(cell(f"{name}: {said}"))


def show(control: Control, pipeline: str, destination: str, as_json: bool) -> int:
    """Everything about one destination. Returns the exit code: 1 if it is parked."""
    status = control.destination(pipeline, destination)
    show_one(status, as_json)
    return 1 if status["state"] == "parked" else 0


def show_one(found: Status, as_json: bool) -> None:
    """Everything about one thing."""
    if as_json:
        print_json([found])
    else:
        console().print(_details(found))


def print_json(values: Iterable[Status]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def table_of(found: Sequence[Status]) -> Table:
    """One row per destination. In a narrow terminal ids and reasons are folded, never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    several = len({status["pipeline"] for status in found}) > 1
    if several:
        table.add_column("pipeline", overflow="fold")
    table.add_column("destination", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("position", "exact to", "lag", "seconds", "rows"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what is wrong, and what helps", overflow="fold")
    for status in found:
        table.add_row(*([cell(status["pipeline"])] if several else []), *_row(status))
    return table


def _row(status: Status) -> list[str]:
    colour = COLOURS.get(status["state"], "white")
    return [
        cell(status["id"]),
        f"[{colour}]{cell(status['state'])}[/]",
        *(_figure(status[key]) for key in ("position", "known_through", "lag_snapshots")),
        _figure(status["lag_seconds"], "unknown"),
        _figure(status["rows_applied"]),
        cell(_problem(status)),
    ]


def _figure(figure: float | None, none: str = "–") -> str:
    return none if figure is None else f"{figure:,}"


def _details(status: Status) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in status.items():
        table.add_row(cell(name), cell(_text(status, name, value)))
    return table


def _text(status: Status, name: str, value: Any) -> str:
    if name == "error":
        return _problem(status)
    if value is None:
        return "–"
    return told(value) if name == "topic" else str(value)


def _problem(status: Status) -> str:
    error = status.get("error")
    if not error:
        return ""
    hint = f" → {error['hint']}" if error.get("hint") else ""
    return f"{error['type']}: {error['message']}{hint}"
