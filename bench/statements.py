"""``python -m bench.statements``: what one apply says to a Postgres catalog, how long that takes, and what the rest is.

Twenty rows of a table in files change; lakes are attached and warm; medians of all applies after the first.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import Outcome
from tests.lake.rig import ApplyRig
from tests.servers.postgres import Postgres

TENANT = "tenant"
APPLIES = 30
SETTINGS = {"log_min_duration_statement": "0", "log_line_prefix": "%d|"}
SPOKEN = r"^{}\|LOG:  duration: ([\d.]+) ms  (statement|parse [^:]*): (.*?)(?=^\w*\|)"
ASKED_FIRST = "what columns a statement has"
"""DuckDB parses such a statement on the server and has it described, two round trips, before it sends it."""
OTHER = "other"

KINDS = (
    ("health check of the pool", r"SELECT 1$"),
    ("return to the pool", r"DISCARD ALL"),
    ("begin", r"BEGIN"),
    ("commit", r"COMMIT"),
    ("newest snapshot", r"FROM .{0,20}ducklake_snapshot\b"),
    ("what the transaction writes", r"INSERT INTO"),
    ("table and column statistics", r"ducklake_table_(column_)?stats"),
    ("data files and delete files", r"ducklake_(data|delete)_file\b"),
    ("statistics of files", r"ducklake_file_column_stats"),
    ("inlined rows and deletes", r"ducklake_inlined_(data_\d|delete_\d)"),
    ("schema versions, paths, inlined tables", r"ducklake_(schema_versions|schema|table|inlined_data_tables)\b"),
    ("Postgres's own catalog", r"pg_namespace"),
)
"""What a statement is for, by the first of these that it shows."""
NAMES = (*(name for name, _ in KINDS), ASKED_FIRST, OTHER)
"""All that ``spoken`` tells apart."""


@dataclass(frozen=True)
class Apply:
    """One apply: its seconds as the applier sees them, and milliseconds of each statement by kind."""

    seconds: float
    spoken: dict[str, list[float]]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="viaduck-bench-") as folder, Postgres(settings=SETTINGS) as server:
        applies = list(_applies(Path(folder), server))[1:]
    console = Console(width=110)
    console.print(table(applies))


def table(applies: list[Apply]) -> Table:
    """Medians by kind, and what is left: DuckDB's own time."""
    made = Table(title=f"One apply on Postgres, medians of {len(applies)}")
    for name in ("what", "statements", "ms in Postgres"):
        made.add_column(name, justify="left" if name == "what" else "right")
    inside = 0.0
    for name in NAMES:
        count = statistics.median(len(each.spoken.get(name, ())) for each in applies)
        ms = statistics.median(sum(each.spoken.get(name, ())) for each in applies)
        inside += ms
        if count:
            made.add_row(name, f"{count:g}", f"{ms:.2f}")
    whole = statistics.median(each.seconds for each in applies) * 1000
    every = statistics.median(sum(map(len, each.spoken.values())) for each in applies)
    first = statistics.median(len(each.spoken.get(ASKED_FIRST, ())) for each in applies)
    made.add_row("all statements", f"{every:g}", f"{inside:.2f}", style="bold")
    made.add_row("round trips, one after the other", f"{every + first:g}", "", style="bold")
    made.add_row("DuckDB: planning, reading, writing files, waiting for answers", "", f"{whole - inside:.2f}")
    made.add_row("the apply", "", f"{whole:.2f}", style="bold")
    return made


def _applies(folder: Path, server: Postgres) -> Iterator[Apply]:
    rig = ApplyRig(folder, lambda name, data: _lake(server, name, data))
    try:
        rig.sql(
            "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
            "CALL src.set_option('data_inlining_row_limit', 0)",
            f"INSERT INTO src.main.t SELECT i, '{TENANT}', 'v' FROM range(10000) r(i)",
        )
        rig.add(TENANT)
        rig.seed()
        for number in range(APPLIES):
            position = rig.head
            rig.sql(f"UPDATE src.main.t SET v = 'x' WHERE id >= {number * 20} AND id < {number * 20 + 20}")
            said = len(server.log())
            (answer,) = rig.changes(position, TENANT)
            assert answer.outcome is Outcome.APPLIED, answer
            yield Apply(answer.seconds["apply"], spoken(server.log()[said:]))
    finally:
        rig.close()
        worker_state.forget()


def spoken(log: str, database: str = TENANT) -> dict[str, list[float]]:
    """Milliseconds of the statements by kind, from Postgres's log; ``database`` is a pattern of whose."""
    found: dict[str, list[float]] = {}
    for ms, how, statement in re.findall(SPOKEN.format(database), log + "|", re.MULTILINE | re.DOTALL):
        shown = (name for name, shows in KINDS if re.search(shows, statement.strip()))
        kind = ASKED_FIRST if how != "statement" else next(shown, OTHER)
        found.setdefault(kind, []).append(float(ms))
    return found


def _lake(server: Postgres, name: str, data: Path) -> ResolvedLake:
    server.create_database(name)
    return ResolvedLake(f"postgres:{server.dsn(name)}", None, str(data))


if __name__ == "__main__":
    main()
