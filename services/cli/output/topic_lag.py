"""How far destinations are behind their topics, by partition, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from services.cli.output.sanitize import cell

Status = Mapping[str, Any]

FIGURES = ("head", "position", "lag_records", "lag_seconds")


def partitions_of(found: Sequence[Status]) -> Table | None:
    """One row for each partition of the destinations' topics; None where no source is a topic."""
    shown = [(status, each) for status in found for each in (status.get("topic") or {}).get("partitions", ())]
    if not shown:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("destination", overflow="fold")
    for name in ("partition", "head", "position", "lag", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for status, each in shown:
        table.add_row(cell(status["id"]), f"{each['partition']}", *(figure(each[name]) for name in FIGURES))
    return table


def told(topic: Mapping[str, Any]) -> str:
    """The same of one destination, in words."""
    parts = [
        f"partition {each['partition']}: {figure(each['position'])} of {figure(each['head'])}"
        f" ({figure(each['lag_records'])} behind, {figure(each['lag_seconds'])} s)"
        for each in topic["partitions"]
    ]
    return "; ".join([f"{figure(topic['lag_records'])} records behind", *parts])


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"
