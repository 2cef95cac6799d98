"""What ``viaduck destination`` does beyond showing: add, import, remove, and wait for what takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from viaduck_client import Client, Operation
from viaduck_client.client import ASK_EVERY_S

from services.cli.commands.options import CommandContext
from services.cli.output.listing import show_list
from services.cli.output.sanitize import legible
from services.cli.output.status_table import print_json, show_one
from shared.contracts.errors import ConfigError

DONE, FAILED = 0, 1
CHECKS = ("check", "ok", "message", "hint")

Tell = Callable[[int, int], None]
"""Takes how much is done, and of how much."""

HELD_BACK = 424
"""A line of an import that nothing speaks against, where nothing was applied since another one failed."""


def add(call: CommandContext, destination: str, entry: Mapping[str, Any], *, check: bool, if_match: int | None) -> int:
    """Returns the exit code: 1 if it does not run in the time that there is to wait."""
    pipeline = call.pipeline
    found = call.client.put(pipeline, destination, entry, check=check, if_match=if_match)
    if call.wait_s is not None:
        found = _until_running(call.client, pipeline, destination, call.wait_s)
    show_one(found, call.json)
    return DONE if call.wait_s is None or found["state"] == "running" else FAILED


def validate(client: Client, pipeline: str, entry: Mapping[str, Any], as_json: bool) -> int:
    """Returns the exit code: 1 if something speaks against it."""
    found = client.validate(pipeline, entry)
    show_list(found["checks"], CHECKS, as_json)
    return DONE if found["valid"] else FAILED


def import_(client: Client, pipeline: str, file: Path, all_or_nothing: bool, as_json: bool) -> int:
    """Returns the exit code: 1 if a line failed."""
    try:
        body = file.read_bytes()
    except OSError as error:
        raise ConfigError([f"{file}: can't be read: {error.strerror}"]) from None
    found = client.import_lines(pipeline, body, all_or_nothing=all_or_nothing)
    if as_json:
        print_json(found["lines"])
    else:
        for line in found["lines"]:
            if line["detail"] and line["status"] != HELD_BACK:
                sys.stderr.write(legible(f"line {line['line']}: {line['detail']}") + "\n")
        said = f"{found['created']} created, {found['changed']} changed, {found['failed']} failed"
        print(said if found["applied"] else f"nothing was changed: {found['failed']} lines failed")
    return FAILED if found["failed"] else DONE


def remove(call: CommandContext, destination: str, *, drop: bool, if_match: int | None) -> int:
    begun = call.client.remove(call.pipeline, destination, drop=drop, if_match=if_match)
    if begun is not None:
        return follow(call.client, begun, call.wait_s, call.json)
    if not call.json:
        print(f"{destination} is removed; its data stays")
    return DONE


def follow(client: Client, operation: Operation, wait_s: float | None, as_json: bool) -> int:
    """Show an operation, after it is over where there is time to wait. Returns the exit code: 1 if it failed."""
    if wait_s is not None:
        what = f"{operation['kind']} of {operation['destination']}"
        with progress(what):
            operation = client.wait(operation["pipeline"], operation["id"], wait_s)
    if as_json:
        print_json([dict(operation)])
    else:
        error = operation["error"]
        reason = f": {error['type']}: {error['message']} → {error['hint']}" if error else ""
        what = f"{operation['kind']} of {operation['destination']}"
        print(legible(f"{what}: {operation['state']}{reason} ({operation['id']})"))
    return DONE if wait_s is None or operation["state"] == "succeeded" else FAILED


def _until_running(client: Client, pipeline: str, destination: str, wait_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + wait_s
    with progress(f"seeding {destination}"):
        while True:
            found = client.destination(pipeline, destination)
            if found["state"] != "seeding" or time.monotonic() >= deadline:
                return found
            time.sleep(ASK_EVERY_S)


@contextmanager
def progress(what: str, console: Console | None = None) -> Iterator[Tell]:
    """On a terminal, shows progress on standard error: a bar once a fraction is known."""
    console = console or Console(stderr=True)
    said = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), said, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(legible(what), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
