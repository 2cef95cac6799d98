"""``python -m bench.run``: how fast Viaduck is, each figure beside its target.

Viaduck is the real process tree of ``viaduck up``, warm: seeded, and with a run behind it. Where a target is a share of
what one process with DuckDB alone needs, both bring the same changes in the same run. A case ends by comparing every
destination with its source.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

import pytest
from rich.console import Console

from bench.cases import CASES
from bench.outcome import Case, Outcome, Size
from bench.report import outcomes_table, verdict
from bench.results import keep, machine
from bench.setting import CATALOGS, prepared

RUNS = {Size.QUICK: 2, Size.FULL: 5}


def main() -> int:
    """0 where every target is met, 1 where one is missed, 2 where a case could not be measured."""
    asked = _arguments()
    size = Size.FULL if asked.full else Size.QUICK
    console = Console() if sys.stdout.isatty() else Console(width=160)
    measured, failed = _measure_all(console, [CASES[name] for name in asked.case], asked.catalog, size, asked.runs)
    console.print(outcomes_table(measured))
    if failed:
        console.print(f"not measured: {', '.join(failed)}")
        return 2
    return 0 if all(outcome.met for outcome in measured) else 1


def _measure_all(
    console: Console, cases: Sequence[Case], catalogs: Sequence[str], size: Size, runs: int | None
) -> tuple[list[Outcome], list[str]]:
    """What was measured, and the names of cases that could not be: one that breaks costs the others nothing."""
    measured, failed = [], []
    for case, catalog in [(case, catalog) for case in cases for catalog in catalogs]:
        if catalog == "sqlite" and not case.sqlite:
            continue
        console.print(f"{case.name} on {catalog}: {case.what} …")
        try:
            outcome = measure(case, catalog, size, RUNS[size] if runs is None else runs)
        except (Exception, pytest.skip.Exception):
            console.print(traceback.format_exc(), markup=False)
            failed.append(f"{case.name} on {catalog}")
            continue
        measured.append(outcome)
        console.print(f"  {verdict(outcome.met)}, {outcome.seconds:.0f} s; written to {keep(outcome, machine())}")
    return measured, failed


def measure(case: Case, catalog: str, size: Size, runs: int) -> Outcome:
    began = time.monotonic()
    with prepared(size, runs, catalog) as setting:
        found = case.measure(setting)
    seconds = round(time.monotonic() - began, 1)
    return Outcome(case.name, case.what, catalog, size, runs, tuple(found.checks), dict(found.figures), seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs; the default")
    sizes.add_argument("--full", action="store_true", help="the sizes that the targets name, medians of five")
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    parser.add_argument(
        "--catalog", action="append", choices=CATALOGS, help="default: postgres, which the targets name"
    )
    parser.add_argument("--runs", type=int, help="that count, in cases which are repeated")
    found = parser.parse_args()
    found.case, found.catalog = found.case or list(CASES), found.catalog or ["postgres"]
    return found


if __name__ == "__main__":
    sys.exit(main())
