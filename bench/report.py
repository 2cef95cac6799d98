"""Figures as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from rich.table import Table

from bench.trial import Figures, Run


def runs_table(all_figures: Sequence[Figures]) -> Table:
    table = Table(title="Seconds from the source's commit to the last destination's (median, best to worst)")
    table.add_column("case")
    table.add_column("catalog")
    for column in ("Viaduck", "single process", "ratio", "seed", "seed, single", "memory"):
        table.add_column(column, justify="right")
    for figures in all_figures:
        ours, limit = [run.viaduck_s for run in figures.runs], [run.limit_s for run in figures.runs]
        table.add_row(
            figures.case,
            figures.catalog,
            _spread(ours),
            _spread(limit),
            f"{median(ours) / median(limit):.2f}",
            f"{figures.seed_viaduck_s:.1f}",
            f"{figures.seed_limit_s:.1f}",
            f"{sum(figures.memory_mb.values()) / 1000:.2f} GB",
        )
    return table


def phases_table(all_figures: Sequence[Figures]) -> Table:
    """Where the time goes. Phases of parallel tasks overlap; what no job accounts for is polling, Kafka and Spark."""
    table = Table(title="Seconds by phase (median)")
    table.add_column("case")
    table.add_column("catalog")
    names = sorted({name for figures in all_figures for run in figures.runs for name in run.viaduck_phases})
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("single process")
    for figures in all_figures:
        shares = [f"{_median_of(figures.runs, name):.3f}" for name in names]
        limit = {
            name: median(run.limit_phases.get(name, 0.0) for run in figures.runs) for name in ("feed", "state", "apply")
        }
        alone = ", ".join(f"{name} {seconds:.3f}" for name, seconds in limit.items())
        table.add_row(figures.case, figures.catalog, *shares, alone)
    return table


def idle_table(all_figures: Iterable[Figures]) -> Table:
    table = Table(title="An idle source")
    table.add_column("case")
    table.add_column("catalog")
    for column in ("seconds", "polls", "source statements", "source snapshots", "CPU seconds"):
        table.add_column(column, justify="right")
    for figures in all_figures:
        if figures.idle is not None:
            idle = figures.idle
            asked = "–" if idle.source_statements is None else str(idle.source_statements)
            cells = (
                f"{idle.seconds:.0f}",
                f"{idle.polls:.0f}",
                asked,
                str(idle.source_snapshots),
                f"{idle.cpu_seconds:.2f}",
            )
            table.add_row(figures.case, figures.catalog, *cells)
    return table


def memory_table(all_figures: Sequence[Figures]) -> Table:
    table = Table(title="Memory by process, MB (proportional set size)")
    table.add_column("case")
    table.add_column("catalog")
    kinds = sorted({kind for figures in all_figures for kind in figures.memory_mb})
    for kind in [*kinds, "all"]:
        table.add_column(kind, justify="right")
    for figures in all_figures:
        used = [f"{figures.memory_mb.get(kind, 0.0):.0f}" for kind in kinds]
        table.add_row(figures.case, figures.catalog, *used, f"{sum(figures.memory_mb.values()):.0f}")
    return table


def _median_of(runs: Sequence[Run], phase: str) -> float:
    return median(run.viaduck_phases.get(phase, 0.0) for run in runs)


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"
