"""What ``viaduck destination upkeep`` does: begins it, waits for it, and shows what each step came to."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from viaduck_client import Client

from services.cli.commands.destination_actions import DONE, FAILED, progress
from services.cli.output.listing import show_list
from services.cli.output.sanitize import legible
from services.cli.output.status_table import print_json

STEPS = (
    "destination", "step", "outcome", "files_removed", "bytes_freed", "snapshots_expired", "left", "seconds", "reason",
)  # fmt: skip


def keep(
    client: Client,
    pipeline: str,
    destination: str,
    steps: Sequence[str] | None,
    *,
    dry_run: bool,
    wait_s: float | None,
    as_json: bool,
) -> int:
    """Returns the exit code: 1 if it failed, or did not end in the time that there is to wait."""
    begun = client.upkeep(pipeline, destination, steps=steps, dry_run=dry_run)
    return _end(_finished(client, pipeline, [dict(begun)], wait_s), waited=wait_s is not None, as_json=as_json)


def keep_all(
    client: Client,
    pipeline: str,
    steps: Sequence[str] | None,
    *,
    dry_run: bool,
    wait_s: float | None,
    as_json: bool,
) -> int:
    """The same for every destination. Those that get none now are named on standard error."""
    begun = client.upkeep_all(pipeline, steps=steps, dry_run=dry_run)
    for each in begun["refused"]:
        sys.stderr.write(legible(f"{each['destination']}: {each['reason']}") + "\n")
    return _end(_finished(client, pipeline, begun["operations"], wait_s), waited=wait_s is not None, as_json=as_json)


def _finished(
    client: Client, pipeline: str, operations: Sequence[dict[str, Any]], wait_s: float | None
) -> list[dict[str, Any]]:
    """As they are now, or once they are over."""
    if wait_s is None:
        return list(operations)
    deadline, found = time.monotonic() + wait_s, []
    with progress(f"upkeep of {len(operations)} destinations") as tell:
        for number, each in enumerate(operations):
            left_s = max(0.0, deadline - time.monotonic())
            found.append(dict(client.wait(pipeline, each["id"], left_s)))
            tell(number + 1, len(operations))
    return found


def _end(operations: Sequence[dict[str, Any]], *, waited: bool, as_json: bool) -> int:
    if as_json:
        print_json(list(operations))
    else:
        _show(operations)
    is_done = all(each["state"] == "succeeded" for each in operations)
    return DONE if is_done or not waited else FAILED


def _show(operations: Sequence[dict[str, Any]]) -> None:
    steps = [
        {"destination": operation["destination"], **step}
        for operation in operations
        for step in (operation["upkeep"] or {"steps": []})["steps"]
    ]
    if steps:
        show_list(steps, STEPS, False)
    for each in operations:
        error = each["error"]
        why = f": {error['type']}: {error['message']} → {error['hint']}" if error else ""
        print(legible(f"upkeep of {each['destination']}: {each['state']}{why} ({each['id']})"))
