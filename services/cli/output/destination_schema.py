"""``viaduck destination schema``: a destination's columns beside the source's, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.cli.output.listing import show_list
from services.cli.output.sanitize import cell
from services.cli.output.status_table import print_json
from services.cli.runtime.client import Control
from services.cli.runtime.console import console

COLUMNS = ("id", "destination", "type", "source_id", "source_at_position", "source_at_head", "type_at_head")

Found = Mapping[str, Any]


def show(control: Control, pipeline: str, destination: str, as_json: bool) -> int:
    """Returns the exit code: 1 if the source's columns are not followed to its head."""
    found = control.schema(pipeline, destination)
    if as_json:
        print_json([found])
    else:
        show_list(list(rows(found)), COLUMNS, False)
        for line in conclusion(found):
            console().print(cell(line))
    return 1 if found["refused"] is not None else 0


def rows(found: Found) -> Iterator[dict[str, Any]]:
    """One for each column of the destination, then those that only the source has."""
    then, now = _by_id(found["source_at_position"]), _by_id(found["source_at_head"])
    for own in found["columns"]:
        yield _row(own, own["source_id"], then, now)
    known = {own["source_id"] for own in found["columns"]}
    yield from (_row(None, source_id, then, now) for source_id in now if source_id not in known)


def conclusion(found: Found) -> Iterator[str]:
    """What the columns come to."""
    position, head, refused = found["position"], found["head"], found["refused"]
    if position is None:
        yield "not seeded yet: its seed makes the table with the source's columns"
    elif head is None:
        yield f"at position {position} of a topic, of which no columns are known"
    else:
        yield f"at snapshot {position} of the source, whose head is {head}; evolution.policy: {found['policy']}"
        if refused is None:
            yield f"to be done: {', '.join(found['steps'])}" if found["steps"] else "nothing is to be done"
    if refused is not None:
        yield f"not followed: {refused['type']}: {refused['message']} → {refused['hint']}"


def _row(
    own: Found | None, source_id: int | None, then: Mapping[int, Found], now: Mapping[int, Found]
) -> dict[str, Any]:
    before, after = (None, None) if source_id is None else (then.get(source_id), now.get(source_id))
    return {
        "id": None if own is None else own["id"],
        "destination": _named(own),
        "type": None if own is None else own["type"],
        "source_id": source_id,
        "source_at_position": _named(before),
        "source_at_head": _named(after),
        "type_at_head": None if after is None else after["type"],
    }


def _named(column: Found | None) -> str | None:
    return None if column is None else ".".join(column["path"])


def _by_id(columns: Sequence[Found] | None) -> dict[int, Found]:
    return {column["id"]: column for column in columns or ()}
