"""Where commands print tables: a terminal has a width, a file or pipe has none."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED = 100_000
"""Columns if the output is not a terminal: cells in a file or pipe are not cut or wrapped."""


def console(*, stderr: bool = False) -> Console:
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=UNBOUNDED)
