"""``python -m bench.statements``: what one apply says to a Postgres catalog, how long that takes, and what the rest is.

Twenty rows of a table in files change; lakes are attached and warm; medians of all applies after the first. DuckLake's
extension commits one, and Viaduck itself the next, in turn, so that both meet the same machine.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from services.applier.model.task import Limits, SourceTable, Target, Task
from services.applier.worker import worker_state
from services.applier.worker.task_run import TaskRun
from services.applier.worker.worker_state import Worker
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from tests.lake.rig import ApplyRig
from tests.servers.postgres import Postgres

TENANT = "tenant"
APPLIES = 30
"""By each path."""
PATHS = (CommitPath.EXTENSION, CommitPath.DIRECT)
SETTINGS = {"log_min_duration_statement": "0", "log_line_prefix": "%d|"}
SPOKEN = r"^{}\|LOG:  duration: ([\d.]+) ms  (statement|parse [^:]*|bind [^:]*|execute [^:]*): (.*?)(?=^\w*\|)"
ASKED_FIRST = "what columns a statement has"
"""DuckDB parses such a statement on the server and has it described, two round trips, before it sends it."""
OTHER = "other"

KINDS = (
    ("the look", r"^SELECT found"),
    ("the number of the snapshot", r"^INSERT INTO \S+ducklake_snapshot\b"),
    ("the batch", r"^WITH checked"),
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
    """One apply: its seconds as the applier sees them, CPU seconds of our own, and milliseconds of each statement by
    kind."""

    commit: CommitPath
    seconds: float
    cpu_seconds: float
    spoken: dict[str, list[float]]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="viaduck-bench-") as folder, Postgres(settings=SETTINGS) as server:
        applies = list(_applies(Path(folder), server))[2 * len(PATHS) :]
    console = Console(width=110)
    for commit in PATHS:
        console.print(table(commit, [apply for apply in applies if apply.commit is commit]))


def table(commit: CommitPath, applies: list[Apply]) -> Table:
    """Medians by kind, and what is left: DuckDB's own time."""
    made = Table(title=f"One apply on Postgres, committed by {commit.value}, medians of {len(applies)}")
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
    cpu = statistics.median(each.cpu_seconds for each in applies) * 1000
    made.add_row("CPU of the applier, reading the source included", "", f"{cpu:.2f}")
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
        ways = {commit: _applier(commit) for commit in PATHS}
        for number in range(APPLIES * len(PATHS)):
            commit = PATHS[number % len(PATHS)]
            position = rig.head
            rig.sql(f"UPDATE src.main.t SET v = 'x' WHERE id >= {number * 20} AND id < {number * 20 + 20}")
            said, used = len(server.log()), time.process_time()
            target = rig.target(TENANT, ItemKind.CHANGES, expected=position, after=position)
            answer = _changed(rig, ways[commit], target)
            assert (answer.outcome, answer.commit) == (Outcome.APPLIED, commit), answer
            used = time.process_time() - used
            yield Apply(commit, answer.seconds["apply"], used, spoken(server.log()[said:]))
    finally:
        rig.close()
        worker_state.forget()


def spoken(log: str, database: str = TENANT) -> dict[str, list[float]]:
    """Milliseconds of the statements by kind, from Postgres's log; ``database`` is a pattern of whose."""
    found: dict[str, list[float]] = {}
    lines = re.findall(SPOKEN.format(database), log + "|", re.MULTILINE | re.DOTALL)
    executed = {_text(statement) for _, how, statement in lines if how.startswith("execute")}
    prepared_ms = 0.0
    for ms, how, statement in lines:
        if how.startswith(("parse", "bind")) and _text(statement) in executed:
            prepared_ms += float(ms)  # with the execution it is one message
            continue
        shown = (name for name, shows in KINDS if re.search(shows, statement.strip()))
        kind = ASKED_FIRST if how.startswith("parse") else next(shown, OTHER)
        found.setdefault(kind, []).append(float(ms) + prepared_ms)
        prepared_ms = 0.0
    return found


def _text(statement: str) -> str:
    """A statement without the details that the log tells of its values."""
    return statement.split("\n", maxsplit=1)[0]


def _applier(commit: CommitPath) -> Worker:
    """A worker that commits in one way, with its own open lakes: a process has but one."""
    return Worker(Limits(commit=commit.value))


def _changed(rig: ApplyRig, worker: Worker, target: Target) -> Progress:
    task = Task(ItemKind.CHANGES, SourceTable(rig.source, "main", "t", rig.routing), (target,), worker.limits)
    (result,) = TaskRun(worker, task).results()
    return result.progress


def _lake(server: Postgres, name: str, data: Path) -> ResolvedLake:
    server.create_database(name)
    return ResolvedLake(f"postgres:{server.dsn(name)}", None, str(data))


if __name__ == "__main__":
    main()
