"""Lists as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from services.cli.output.sanitize import cell
from services.cli.output.status_table import print_json
from services.cli.runtime.console import console

COMMITS = ("snapshot", "at", "source_at", "kind", "path", "generation", "after", "through", "deleted", "inserted",
           "columns", "seconds")  # fmt: skip
CHANGES = ("at", "author", "destination", "deed", "generation", "version", "changes")
OPERATIONS = ("id", "destination", "kind", "state", "generation", "to", "created_at", "finished_at")
TOKENS = ("id", "name", "scope", "pipelines", "author", "created_at", "revoked_at", "revoked_by")
LAKES = ("id", "files", "bytes", "rows", "small_file_share", "dead_rows", "snapshots", "oldest_at", "old_bytes",
         "cleanup_files", "error")  # fmt: skip
WORK = ("partition", "offset", "published_at", "destination", "kind", "generation", "after", "through", "state")
PROPOSALS = ("id", "rows", "first_seen", "routing_value", "destination", "reason", "message")
REJECTED = ("partition", "offset", "rejected_at", "reason", "source_partition", "source_offset", "size", "message")
LETTERS = ("partition", "offset", "at", "topic", "by", "reason")


def show_list(found: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool) -> int:
    """Returns the exit code: 0."""
    if as_json:
        print_json(found)
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for each in found:
        table.add_row(*(_cell(each.get(name)) for name in columns))
    console().print(table if found else "none")
    return 0


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}: {_was(change)}" for name, change in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    return cell(str(value))


def _was(change: Any) -> str:
    match change:
        case [None, now]:
            return str(now)
        case [was, now]:
            return f"{was} → {now}"
    return str(change)
