"""``python -m bench.run``: how fast Viaduck is, beside the limit that one process with DuckDB alone sets.

Viaduck is the real process tree of ``viaduck up`` and warm: seeded, and with one run behind it. Both bring the same
changes to lakes of their own, one after the other; every destination is compared with its source at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from rich.console import Console

from bench.lakes import Lakes, PostgresLakes, SqliteLakes
from bench.report import idle_table, memory_table, phases_table, runs_table
from bench.trial import Figures, Trial
from bench.workload import DENSE, MANY, SMALL, SPARSE, Case
from tests.servers.postgres import Postgres

CASES = {case.name: case for case in (DENSE, SMALL, MANY, SPARSE)}
QUICK = (DENSE.name, SMALL.name)
CATALOGS = ("sqlite", "postgres")
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    wanted = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    measured = []
    for case in wanted.case:
        for catalog in wanted.catalog:
            console.print(f"{case} on {catalog}: {wanted.runs} runs after one for warmth …")
            measured.append(_measure(CASES[case], catalog, wanted.runs))
    for table in (runs_table(measured), phases_table(measured), idle_table(measured), memory_table(measured)):
        console.print(table)
    console.print(f"written to {_keep(measured)}")


def _measure(case: Case, catalog: str, runs: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="viaduck-bench-") as folder, _lakes(catalog, Path(folder)) as lakes:
        return Trial(case, lakes, Path(folder)).measure(runs)


@contextmanager
def _lakes(catalog: str, root: Path) -> Iterator[Lakes]:
    if catalog == "sqlite":
        yield SqliteLakes(root)
        return
    with Postgres(settings=PostgresLakes.settings) as server:
        yield PostgresLakes(root, server)


def _keep(measured: Sequence[Figures]) -> Path:
    """One file for each call, so that figures can be compared over time."""
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{now:%Y%m%dT%H%M%S}.json"
    trials = [asdict(figures) for figures in measured]
    file.write_text(json.dumps({"at": now.isoformat(), "machine": machine(), "trials": trials}, indent=1))
    return file


def machine() -> dict[str, object]:
    return {
        "cpus": os.cpu_count(),
        "load_1m": os.getloadavg()[0],
        "system": platform.platform(),
        "duckdb": duckdb.__version__,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES, help="default: " + ", ".join(QUICK))
    parser.add_argument("--catalog", action="append", choices=CATALOGS, help="default: all")
    parser.add_argument("--runs", type=int, default=5)
    found = parser.parse_args()
    found.case, found.catalog = found.case or list(QUICK), found.catalog or list(CATALOGS)
    return found


if __name__ == "__main__":
    main()
