"""``viaduck demo``: one shared table of real flights becomes sixteen exact lakes, and stays exact while it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

from services.cli.runtime.interruptible import Interruption, interruptible
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck, run_to_end
from shared.lake.connection.engine import connect
from shared.lake.sql import literal
from viaduck_demo.flights import FlightPlay, SourceCommit, carriers, days
from viaduck_demo.folder import PIPELINE, DemoFolder
from viaduck_demo.view import DemoView, Scene, TenantRow

SEEDED_THROUGH = date(2013, 6, 30)
PLAYED_FROM = date(2013, 7, 1)
DAYS = 31
SECONDS_PER_COMMIT = 0.4
"""The play's pace on a machine that keeps up with it."""

TIDY_EVERY_DAYS = 7
STAGE_WITHIN_S = 180.0
"""No stage takes nearly that long; where one does, something is wrong and the demo says what."""

REFRESH_S = 0.5


def main(folder: Path = Path("viaduck-demo"), day_count: int = DAYS) -> int:
    """Play the demo in ``folder``, which is made, or replaced if an earlier demo made it. Returns the exit code.

    Raises ``ConfigError`` for a folder that is not the demo's and ``DependencyError`` where Viaduck does not run.
    """
    console, demo = Console(), DemoFolder(folder)

    def perform(_: Interruption) -> int:
        with demo.claimed() as made_at:
            if made_at is not None:
                console.print(f"Replacing the demo of {datetime.fromtimestamp(made_at):%Y-%m-%d %H:%M} in {demo.root}")
            return Performance(demo, console, days(PLAYED_FROM, day_count)).run()

    code = interruptible(perform)
    if code > 128:
        console.print(f"Interrupted; everything has ended. What was there stays in {demo.root}")
    return code


class Performance:
    """One run of the demo, from an empty folder to the last line on the screen."""

    def __init__(self, folder: DemoFolder, console: Console, played: list[date]) -> None:
        self._folder = folder
        self._console = console
        self._played = played
        self._carriers = carriers()
        self._port = free_port()
        self._scene = Scene()
        self._began = time.monotonic()
        self._commits = 0
        self._rows_written = 0

    def run(self) -> int:
        self._folder.write_config(self._carriers, self._port)
        url = f"http://127.0.0.1:{self._port}"
        with _source(self._folder) as con:
            self._play = FlightPlay(con, "source")
            seeded = self._play.seed(SEEDED_THROUGH)
            self._say(f"{seeded:,} flights of {len(self._carriers)} carriers in one table; live page: {url}")
            with RunningViaduck(self._folder.config, url, PIPELINE, self._folder.log) as viaduck:
                self._viaduck = viaduck
                with DemoView(self._console) as self._view:
                    self._perform()
        return self._conclude()

    def _perform(self) -> None:
        self._stage("starting broker, reader, applier and control", self._viaduck.ready)
        self._stage("seeding all tenants from one scan", self._all_exact)
        for commit in self._commit_after_commit():
            due = time.monotonic() + SECONDS_PER_COMMIT
            self._show(f"{commit.day:%d %B %Y}: {commit.what} ({commit.rows:,} rows)")
            time.sleep(max(0.0, due - time.monotonic()))
        self._stage("the play is over, the last tenants catch up", self._all_exact)
        self._show("every tenant is exact at the source's head")

    def _commit_after_commit(self) -> Iterator[SourceCommit]:
        for number, day in enumerate(self._played, start=1):
            for commit in self._play.day(day):
                self._commits += 1
                self._rows_written += commit.rows
                yield commit
            if number == len(self._played) // 2:
                yield from self._play.restructure(day)
            if number % TIDY_EVERY_DAYS == 0:
                yield self._play.tidy_up(day)

    def _stage(self, headline: str, done: Callable[[], bool]) -> None:
        def look() -> bool:
            self._show(headline)
            return done()

        self._viaduck.wait_until(headline, look, STAGE_WITHIN_S, REFRESH_S)

    def _all_exact(self) -> bool:
        return all(tenant.exact for tenant in self._scene.tenants)

    def _show(self, headline: str) -> None:
        known = {status["id"]: status for status in self._viaduck.destinations()}
        head = self._play.head()
        tenants = [self._tenant(carrier, known.get(carrier, {}), head) for carrier in self._carriers]
        self._scene = Scene(headline, head, self._play.rows(), tenants)
        self._view.show(self._scene)

    def _tenant(self, carrier: str, status: dict[str, Any], head: int) -> TenantRow:
        through = status.get("known_through")
        return TenantRow(
            carrier,
            self._carriers[carrier],
            status.get("state", "waiting"),
            self._folder.rows_of(carrier),
            status.get("position"),
            None if through is None else max(0, head - through),
            status.get("lag_seconds"),
        )

    def _conclude(self) -> int:
        """Prove it, from the lakes alone: Viaduck has ended by now."""
        self._say("Viaduck has ended. Proving with Spark that every lake equals its slice of the shared table:")
        different = run_to_end(self._command("verify"))
        self._say(
            f"\n{len(self._played)} days in {self._commits} commits wrote {self._rows_written:,} rows, some of which"
            f" changed hands, a column was renamed and one was added; {time.monotonic() - self._began:.0f} s in all."
        )
        if different:
            self._say(f"Not every tenant is exact; the log is in {self._folder.log}")
            return different
        self._say(f"All {len(self._carriers)} lakes hold exactly their carrier's flights.")
        self._print_next()
        return 0

    def _print_next(self) -> None:
        config = _shown(self._folder.config)
        self._say("\nTry next:", *(f"  viaduck {command} -c {config}" for command in ("up", "status", "verify")))

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "services.cli.main", name, "-c", str(self._folder.config)]


def _shown(path: Path) -> str:
    """A path relative to this directory, as a user would type it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@contextmanager
def _source(folder: DemoFolder) -> Iterator[duckdb.DuckDBPyConnection]:
    """The shared lake, as its owner opens it. Write-ahead logging lets Viaduck read while the owner commits (H8)."""
    con = connect()
    try:
        con.execute(
            f"ATTACH {literal(f'ducklake:sqlite:{folder.source}')} AS source"
            f" (DATA_PATH {literal(str(folder.source_data))}, META_JOURNAL_MODE 'WAL')"
        )
        yield con
    finally:
        con.close()
