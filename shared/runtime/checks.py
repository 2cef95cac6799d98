"""What the checks of a source are called in ``/readyz``."""

from __future__ import annotations

SOURCE = "source"


def source_check(pipeline: str, *, alone: bool) -> str:
    """The name of a pipeline's source in ``/readyz``; that of the only one is plain."""
    return SOURCE if alone else f"{SOURCE} ({pipeline})"


def is_source(check: str) -> bool:
    return check == SOURCE or check.startswith(f"{SOURCE} (")
