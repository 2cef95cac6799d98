"""What ``viaduck destination upkeep`` does: begins it, waits for it, and shows what each step came to."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from services.cli.commands.destination_actions import DONE, FAILED, progress
from services.cli.commands.options import CommandContext
from services.cli.output.listing import show_list
from services.cli.output.sanitize import legible
from services.cli.output.status_table import print_json

STEPS = (
    "destination", "step", "outcome", "files_removed", "bytes_freed", "snapshots_expired", "left", "seconds", "reason",
)  # fmt: skip


def keep(call: CommandContext, destination: str, steps: Sequence[str] | None, *, dry_run: bool) -> int:
    """Returns the exit code: 1 if it failed, or did not end in the time that there is to wait."""
    pipeline = call.pipeline
    begun = call.client.upkeep(pipeline, destination, steps=steps, dry_run=dry_run)
    return _end(call, _finished(call, pipeline, [dict(begun)]))


def keep_all(call: CommandContext, steps: Sequence[str] | None, *, dry_run: bool) -> int:
    """The same for every destination. Those that get none now are named on standard error."""
    pipeline = call.pipeline
    begun = call.client.upkeep_all(pipeline, steps=steps, dry_run=dry_run)
    for each in begun["refused"]:
        sys.stderr.write(legible(f"{each['destination']}: {each['reason']}") + "\n")
    return _end(call, _finished(call, pipeline, begun["operations"]))


def _finished(call: CommandContext, pipeline: str, operations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As they are now, or once they are over."""
    if call.wait_s is None:
        return list(operations)
    deadline, found = time.monotonic() + call.wait_s, []
    with progress(f"upkeep of {len(operations)} destinations") as tell:
        for number, each in enumerate(operations):
            left_s = max(0.0, deadline - time.monotonic())
            found.append(dict(call.client.wait(pipeline, each["id"], left_s)))
            tell(number + 1, len(operations))
    return found


def _end(call: CommandContext, operations: Sequence[dict[str, Any]]) -> int:
    if call.json:
        print_json(list(operations))
    else:
        _show(operations)
    is_done = all(each["state"] == "succeeded" for each in operations)
    return DONE if is_done or call.wait_s is None else FAILED


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
