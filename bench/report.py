"""Outcomes as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.outcome import Outcome


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Targets", show_lines=False)
    for column in ("case", "catalogs", "what", "target", "found", ""):
        table.add_column(column, overflow="fold")
    for outcome in outcomes:
        for check in outcome.checks:
            table.add_row(
                outcome.case, outcome.catalog, check.what, check.target, check.found, verdict(check.met),
                end_section=check is outcome.checks[-1],
            )  # fmt: skip
    return table
