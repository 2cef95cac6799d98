"""``viaduck destination health``: how lakes fare, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from services.cli.output import status_table
from services.cli.output.listing import LAKES, show_list
from services.cli.runtime.client import Control


def show_one(control: Control, pipeline: str, destination: str, as_json: bool) -> int:
    """Everything about one lake. Returns the exit code: 1 if its last look failed."""
    found = control.health(pipeline, destination)
    status_table.show_one(found, as_json)
    return _code([found])


def show_all(control: Control, pipelines: Sequence[str], sort: str, limit: int | None, as_json: bool) -> int:
    """One line for each lake of each pipeline. Returns the exit code: 1 if a last look failed."""
    found = [each for name in pipelines for each in islice(control.lakes(name, sort), limit)]
    show_list(found if as_json else [_in_short(each) for each in found], LAKES, as_json)
    return _code(found)


def _in_short(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """An error by its type and message: a table has no room for more."""
    error = found["error"]
    return {**found, "error": None if error is None else f"{error['type']}: {error['message']}"}


def _code(found: Sequence[Mapping[str, Any]]) -> int:
    return 1 if any(each["error"] is not None for each in found) else 0
