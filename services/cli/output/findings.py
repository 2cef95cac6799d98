"""What ``viaduck check`` found, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table

from services.cli.output.sanitize import cell
from services.cli.runtime.console import console

MOST_COLUMNS = 50


@dataclass(frozen=True)
class CheckFinding:
    """One thing that the file names, and what is wrong with it, if anything.

    ``columns``: name and type of each column of a table that would come of it.
    """

    what: str
    fine: bool
    said: str
    hint: str = ""
    columns: tuple[tuple[str, str], ...] = ()


def show(found: Iterable[CheckFinding]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in found:
        table.add_row("ok" if finding.fine else "[bold red]no[/]", cell(finding.what), cell(finding.said))
        if not finding.fine and finding.hint:
            table.add_row("", "", cell(f"→ {finding.hint}"))
        for name, declared in finding.columns[:MOST_COLUMNS]:
            table.add_row("", cell(f"  {name}"), cell(declared))
        if len(finding.columns) > MOST_COLUMNS:
            table.add_row("", f"  … and {len(finding.columns) - MOST_COLUMNS} more columns", "")
    console().print(table)
