"""``viaduck status`` and ``viaduck destination list|show``: what control says, as a table or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from services.cli.client import Control
from services.cli.legible import cell

Status = Mapping[str, Any]

COLOURS = {"running": "green", "seeding": "cyan", "parked": "red", "paused": "yellow", "stopped": "yellow"}


def list_all(control: Control, pipelines: Sequence[str], as_json: bool, **filters: str) -> int:
    """One line per destination. Returns the exit code: 1 if one is parked."""
    found = [status for name in pipelines or control.pipelines() for status in control.destinations(name, **filters)]
    if as_json:
        print_json(found)
    else:
        Console().print(_table(found) if found else "no destinations")
    return 1 if any(status["state"] == "parked" for status in found) else 0


def show(control: Control, pipeline: str, id: str, as_json: bool) -> int:
    """Everything about one destination. Returns the exit code: 1 if it is parked."""
    status = control.destination(pipeline, id)
    show_one(status, as_json)
    return 1 if status["state"] == "parked" else 0


def show_one(found: Status, as_json: bool) -> None:
    """Everything about one thing."""
    if as_json:
        print_json([found])
    else:
        Console().print(_details(found))


def print_json(values: Iterable[Status]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _table(found: Sequence[Status]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    several = len({status["pipeline"] for status in found}) > 1
    if several:
        table.add_column("pipeline", no_wrap=True)
    for name in ("destination", "state"):
        table.add_column(name, no_wrap=True)
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
        text = _problem(status) if name == "error" else "–" if value is None else str(value)
        table.add_row(cell(name), cell(text))
    return table


def _problem(status: Status) -> str:
    error = status.get("error")
    if not error:
        return ""
    hint = f" → {error['hint']}" if error.get("hint") else ""
    return f"{error['type']}: {error['message']}{hint}"
