"""Options of ``viaduck verify`` that need more than a type."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from services.cli.verify.comparison import Past


def past(*, all_snapshots: bool, since: str | None) -> Past | None:
    """Which retained snapshots are to be compared; None for none."""
    if since is not None and not all_snapshots:
        raise typer.BadParameter("goes with --all-snapshots", param_hint="--since")
    if not all_snapshots:
        return None
    from services.cli.verify.comparison import Past

    return Past(None if since is None else _moment(since))


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} is no time with its offset, such as 2026-03-01T00:00:00Z", param_hint="--since"
        )
    return found
