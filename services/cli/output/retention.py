"""``viaduck source retention``: what control says, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from services.cli.output.listing import show_list
from services.cli.output.sanitize import cell
from services.cli.output.status_table import print_json
from services.cli.runtime.console import console

COLUMNS = ("lake", "pipelines", "oldest", "head", "lowest", "may_expire_through", "held_by")
MOST_NAMED = 10


def show(found: Iterable[Mapping[str, Any]], pipelines: Collection[str], as_json: bool) -> int:
    """The lakes of these pipelines, or all where none is named. Returns the exit code: 1 if a position is unknown."""
    lakes = [each for each in found if not pipelines or not set(pipelines).isdisjoint(each["pipelines"])]
    if as_json:
        print_json(lakes)
    else:
        show_list([_in_short(each) for each in lakes], COLUMNS, as_json=False)
        _print_troubles(lakes)
    return 1 if any(each["unknown_count"] for each in lakes) else 0


def _in_short(lake: Mapping[str, Any]) -> Mapping[str, Any]:
    held = lake["held_by"]
    by = None if held is None else f"{held['pipeline']}/{held['destination']} ({held['state']})"
    return {**lake, "pipelines": ", ".join(lake["pipelines"]), "held_by": by}


def _print_troubles(lakes: Sequence[Mapping[str, Any]]) -> None:
    for lake in lakes:
        for line in (*unknown_lines(lake), *([lake["error"]] if lake["error"] else [])):
            console(stderr=True).print(cell(line))


def unknown_lines(lake: Mapping[str, Any]) -> list[str]:
    """Why nothing can be said of a lake; none where every position is known."""
    if not lake["unknown_count"]:
        return []
    named = [name_of(each) for each in lake["unknown"][:MOST_NAMED]]
    more = lake["unknown_count"] - len(named)
    return [f"unknown position: {', '.join(named)}{f' and {more} more' if more > 0 else ''}"]


def name_of(unknown: Mapping[str, Any]) -> str:
    destination = unknown["destination"]
    return (
        f"all destinations of {unknown['pipeline']}" if destination is None else f"{unknown['pipeline']}/{destination}"
    )
