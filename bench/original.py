"""``python -m bench.original --checkout DIR``: the original single-process Viaduck and ours, on the same work.

Each gets a source and tenants' lakes of its own on Postgres, seeds them, and brings the same batches of changes, which
appear at once. The original is started as its documentation says (``--command``), on a configuration file that both
could read, and is done when its own state says so. At the end every destination is held against the source, and rows
that differ are counted. One runs after the other, so that neither takes the other's processor.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import duckdb
import psutil
import yaml
from rich.console import Console
from viaduck_client import Client

from bench.outcome import Check, Outcome, Size, at_most, nothing
from bench.processes import frozen, started, tree
from bench.report import outcomes_table
from bench.results import keep, machine
from bench.setting import Setting, prepared
from bench.stand import Stand, standing
from bench.viaduck import PATIENCE_S, PIPELINE, entry, running_viaduck, wait_caught_up, wait_settled
from bench.workload import (
    COLUMNS,
    DENSE,
    KEY_COLUMN,
    MANY,
    ROUTING_FIELD,
    SCHEMA,
    SOURCE,
    TABLE,
    SourceWriter,
    Workload,
    tenant_names,
)
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck
from shared.contracts.errors import DependencyError
from shared.lake.connection.attach import attach
from shared.lake.sql import literal, path
from tests.servers.postgres import Postgres

COMMAND = "{python} -m viaduck.main --config {config}"
WORKLOADS = {DENSE.name: (DENSE, 0.2), MANY.name: (MANY, 0.02)}
"""With the largest share of the original's time that ours may take."""

SEED_SHARE = 0.2
OTHER, BEFORE = "other", "-before"
STATE_TABLE = "_viaduck_state"
POLL_S = 1
LOOK_EVERY_S, LOOK_AGAIN_S = 1.0, 0.05
WITHIN_S = 1_800.0
END_WITHIN_S = 15.0


@dataclass
class Times:
    """Seconds until all were seeded, and of each batch after the one for warmth.

    Seeds count from ``Contender.asked_at``. ``rows``: that the source holds at the end; ``differing``: that are missing
    or too many in the destinations then.
    """

    seed_s: float = 0.0
    batches_s: list[float] = field(default_factory=list)
    rows: int = 0
    differing: int = 0


class Contender(Protocol):
    """A program that brings changes to a stand's destinations, while it runs."""

    @property
    def asked_at(self) -> float:
        """When it was given the tenants, as a Unix time: the original at its start, ours over REST while it runs."""
        ...

    def still(self) -> AbstractContextManager[None]:
        """It does not look meanwhile."""
        ...

    def wait_done(self, head: int) -> None:
        """Until it says that every destination is at that snapshot of the source, or further."""
        ...


Start = Callable[[Setting, Stand], AbstractContextManager[Contender]]


def main() -> int:
    asked = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=160)
    workload, share = WORKLOADS[asked.case]
    began, times = time.monotonic(), {}
    contenders: dict[str, Start] = {
        "original": lambda setting, stand: running_original(
            setting, stand, asked.checkout, asked.command, asked.python
        ),
        "viaduck": _running_ours,
    }
    for name, start in contenders.items():
        console.print(f"{name}: {workload.name} …")
        with prepared(Size.FULL, asked.runs, "postgres") as setting:
            times[name] = measure(setting, workload, start)
    outcome = Outcome(
        f"original-{workload.name}", "the original script beside Viaduck", "postgres", Size.FULL, asked.runs,
        checks(times["original"], times["viaduck"], share), {name: asdict(found) for name, found in times.items()},
        round(time.monotonic() - began, 1),
    )  # fmt: skip
    console.print(outcomes_table([outcome]))
    console.print(f"written to {keep(outcome, machine())}")
    return 0 if outcome.met else 1


def measure(setting: Setting, workload: Workload, start: Start) -> Times:
    found = Times()
    with standing(setting.on_postgres, tenant_names(workload)) as stand:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with start(setting, stand) as contender:
            contender.wait_done(stand.head())
            found.seed_s = round(stand.last_commit() - contender.asked_at, 2)
            for _ in range(setting.runs + 1):
                with contender.still():
                    writer.run()
                    head = stand.head()
                there_at = time.time()
                contender.wait_done(head)
                found.batches_s.append(round(stand.last_commit() - there_at, 2))
        (found.rows,) = stand.con.execute(f"SELECT count(*) FROM {path(SOURCE, SCHEMA, TABLE)}").fetchall()[0]
        found.differing = sum(_differences(stand, tenant) for tenant in stand.mirror)
    del found.batches_s[0]
    return found


def checks(original: Times, ours: Times, share: float) -> tuple[Check, ...]:
    pairs = [
        ("seeds", original.seed_s, ours.seed_s, SEED_SHARE),
        ("a batch of changes", median(original.batches_s), median(ours.batches_s), share),
    ]
    times = [
        at_most(f"{what}: {mine:.2f} s beside the original's {its:.2f} s", mine / its, most, "x", 3)
        for what, its, mine, most in pairs
    ]
    differing = f"rows that differ at the end, of {ours.rows:,} (the original's: {original.differing:,})"
    return (*times, nothing(differing, ours.differing))


def _differences(stand: Stand, tenant: str) -> int:
    """Rows of the destination that the source has not, and the other way round, whoever brought them there."""
    known = "SELECT count(*) FROM duckdb_databases() WHERE database_name = ?"
    if stand.con.execute(known, [tenant]).fetchall() == [(0,)]:
        attach(stand.con, tenant, stand.mirror[tenant].resolved, read_only=True)
    here = f"SELECT {COLUMNS} FROM {path(tenant, SCHEMA, TABLE)}"
    there = f"SELECT {COLUMNS} FROM {path(SOURCE, SCHEMA, TABLE)} WHERE {ROUTING_FIELD} = {literal(tenant)}"
    both_ways = f"(({here}) EXCEPT ALL ({there})) UNION ALL (({there}) EXCEPT ALL ({here}))"
    return int(stand.con.execute(f"SELECT count(*) FROM ({both_ways})").fetchall()[0][0])


class Original:
    """The script as a process of its own, and what it leads."""

    def __init__(
        self, stand: Stand, server: Postgres, process: subprocess.Popen[bytes], log: Path, asked_at: float
    ) -> None:  # fmt: skip
        self._stand, self._server, self._process, self._log = stand, server, process, log
        self.asked_at = asked_at

    @contextmanager
    def still(self) -> Iterator[None]:
        """Stopped between its transactions in the source: who stops within one locks the writer out."""
        self._send(signal.SIGSTOP)
        try:
            while self._is_within_a_transaction():
                self._send(signal.SIGCONT)
                time.sleep(LOOK_AGAIN_S)
                self._send(signal.SIGSTOP)
            yield
        finally:
            self._send(signal.SIGCONT)

    def _is_within_a_transaction(self) -> bool:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state IN ('active', 'idle in transaction')"
        )
        with self._server.connect() as con:
            return con.execute(query, [self._stand.source.name]).fetchall() != [(0,)]

    def wait_done(self, head: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self._reached(head) < len(self._stand.mirror):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = " / ".join(self._log.read_text(errors="replace").splitlines()[-5:])
                raise DependencyError("the original", f"it ended, or took too long: {said}", f"see {self._log}")
            time.sleep(LOOK_EVERY_S)

    def _reached(self, head: int) -> int:
        """Destinations whose position, which the original keeps in the source, is there."""
        query = f"SELECT count(*) FROM {path(SOURCE, SCHEMA, STATE_TABLE)} WHERE last_snapshot_id >= ?"
        try:
            return int(self._stand.con.execute(query, [head]).fetchall()[0][0])
        except duckdb.CatalogException:
            return 0

    def _send(self, number: signal.Signals) -> None:
        for process in tree(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextmanager
def running_original(
    setting: Setting, stand: Stand, checkout: Path, command: str, python: str
) -> Iterator[Original]:  # fmt: skip
    """The original from a checkout, on a file of its own."""
    file, log = setting.folder / "original.yaml", setting.folder / "original.log"
    document, variables = configuration(stand, setting.on_postgres.server.dsn, (free_port(), free_port()))
    file.write_text(yaml.safe_dump(document))
    words = [word.format(python=python, config=file, checkout=checkout) for word in shlex.split(command)]
    began = time.time()
    with started(words, log, variables, end_within_s=END_WITHIN_S, cwd=checkout) as process:
        yield Original(stand, setting.on_postgres.server, process, log, began)


def configuration(
    stand: Stand, dsn: Callable[[str], str], ports: tuple[int, int]
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The file in the keys that the original knows, and the variables which it names, in the one form that it takes."""
    variables = {"SOURCE_URI": f"postgres:{dsn(stand.source.name)}"}
    destinations = []
    for number, (tenant, lake) in enumerate(stand.mirror.items()):
        variables[f"DEST_{number}_URI"] = f"postgres:{dsn(lake.name)}"
        destinations.append(
            {"id": tenant, "routing_value": tenant, "name": tenant, "postgres_uri_env": f"DEST_{number}_URI",
             "data_path": lake.data_path, "table": TABLE}
        )  # fmt: skip
    document = {
        "source": {"name": SOURCE, "postgres_uri_env": "SOURCE_URI", "data_path": stand.source.data_path,
                   "table": TABLE},
        "routing": {"field": ROUTING_FIELD, "key_columns": [KEY_COLUMN], "seed_mode": "scan"},
        "destinations": destinations,
        "poll": {"interval_seconds": POLL_S},
        "server": {"port": ports[0]},
        "web": {"port": ports[1]},
        "instance": {"id": "viaduck-0", "partition": {"mode": "all"}},
    }  # fmt: skip
    return document, variables


@dataclass(frozen=True)
class _Ours:
    viaduck: RunningViaduck
    asked_at: float

    def still(self) -> AbstractContextManager[None]:
        return frozen(self.viaduck.pid, "reader")

    def wait_done(self, head: int) -> None:
        wait_caught_up(self.viaduck, head)


@contextmanager
def _running_ours(setting: Setting, stand: Stand) -> Iterator[Contender]:
    """Its services are warm: they have seeded the same tenants once before, in other lakes."""
    before = {tenant: stand.lakes.new(f"before_{tenant}") for tenant in stand.mirror}
    with (
        running_viaduck(setting.folder, stand.source, {OTHER: stand.lakes.new(OTHER)}) as viaduck,
        Client(viaduck.url, timeout_s=PATIENCE_S) as operator,
    ):
        operator.import_(PIPELINE, [entry(tenant, lake, BEFORE) for tenant, lake in before.items()])
        wait_settled(viaduck, stand.head())
        for tenant in before:
            operator.remove(PIPELINE, f"{tenant}{BEFORE}")
        wait_settled(viaduck, stand.head())
        asked_at = time.time()
        operator.import_(PIPELINE, [entry(tenant, lake) for tenant, lake in stand.mirror.items()])
        yield _Ours(viaduck, asked_at)


def _arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="of the original; it is the working directory")
    parser.add_argument("--command", default=COMMAND, help="how it is started; default: %(default)s")
    parser.add_argument("--python", default=sys.executable, help="{python} in the command, of its own environment")
    parser.add_argument("--case", choices=WORKLOADS, default=DENSE.name)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
