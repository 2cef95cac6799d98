"""What ``viaduck pipeline`` does beyond showing: put and remove."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viaduck_client import Client
from viaduck_client.client import ASK_EVERY_S

from services.cli.commands.destination_actions import DONE, FAILED, progress
from services.cli.output.status_table import show_one
from shared.config.config_errors import Mistakes
from shared.config.document import read, to_json


def put(client: Client, name: str, file: Path, *, check: bool, wait_s: float | None, as_json: bool) -> int:
    """Returns the exit code: 1 if it is not caught up in the time that there is to wait."""
    found = client.put_pipeline(name, document_of(file), check=check)
    if wait_s is not None:
        found = _until_caught_up(client, name, wait_s)
    show_one(found, as_json)
    return DONE if wait_s is None or found["caught_up"] else FAILED


def remove(client: Client, name: str, as_json: bool) -> int:
    client.remove_pipeline(name)
    if not as_json:
        print(f"{name} and its destinations are removed; their data stays")
    return DONE


def document_of(file: Path) -> dict[str, Any]:
    """A configuration file, in YAML or JSON, as it is sent. Raises ``ConfigError``."""
    mistakes = Mistakes()
    document = read(file, mistakes)
    if mistakes:
        raise mistakes.error(document.positions)
    found: dict[str, Any] = to_json(document.tree)
    return found


def _until_caught_up(client: Client, name: str, wait_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + wait_s
    with progress(f"{name} catches up") as tell:
        while True:
            found = client.pipeline(name)
            tell(*_caught_up(found["destinations"]))
            if found["caught_up"] or found["refused"] or time.monotonic() >= deadline:
                return found
            time.sleep(ASK_EVERY_S)


def _caught_up(states: Mapping[str, int]) -> tuple[int, int]:
    """How many of the destinations that are to be seeded are, and how many there are."""
    total = states["total"]
    return total - states.get("seeding", 0), total
