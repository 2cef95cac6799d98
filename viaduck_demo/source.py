"""``viaduck demo-source``: a source that moves. It plays the demo's flights into the source of a configuration file.

It stands for the systems that write a shared lake, and is not part of Viaduck: nothing else in it writes to a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import islice

import duckdb
import structlog

from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.lake.connection.attach import attach, detach
from shared.lake.connection.engine import connect
from shared.runtime import log as logging
from shared.runtime.signals import Signals
from viaduck_demo.flights import LAST_DAY, TABLE, FlightPlay, SourceCommit, days

log = structlog.get_logger(__name__)

ALIAS = "source"
SEEDED_THROUGH = date(2013, 6, 30)


def main(config: Config, every_s: float, most: int | None = None) -> int:
    """Play one commit every ``every_s`` seconds, until told to end or ``most`` are done. Returns the exit code.

    A play that was interrupted goes on with the day it was in; when the year is over, its second half begins again.
    Raises ``ConfigError`` for a file with another table and ``DependencyError`` where the source can't be reached.
    """
    logging.configure("demo-source")
    if (config.source.schema_name, config.source.table) != ("main", TABLE):
        raise ConfigError([f"source.table: the demo's flights need the table main.{TABLE}"])
    with Signals() as signals, _source(config) as con:

        def is_ending() -> bool:
            return signals.ended_by is not None

        for commit in islice(_commits(FlightPlay(con, ALIAS), is_ending), most):
            log.info("demo_committed", day=str(commit.day), what=commit.what, rows=commit.rows)
            signals.wait(every_s)
            signals.take_reload()
            if is_ending():
                break
        return signals.exit_code


def _commits(play: FlightPlay, is_ending: Callable[[], bool]) -> Iterator[SourceCommit]:
    if not play.exists():
        yield SourceCommit(SEEDED_THROUGH, "half a year of flights", play.seed(SEEDED_THROUGH))
    while not is_ending():
        last = play.last_day()
        resumed = last if last is not None and SEEDED_THROUGH < last < LAST_DAY else SEEDED_THROUGH + timedelta(1)
        yield SourceCommit(resumed, "what is played again is taken back", play.take_back(resumed))
        for day in days(resumed, (LAST_DAY - resumed).days + 1):
            yield from play.day(day)


@contextmanager
def _source(config: Config) -> Iterator[duckdb.DuckDBPyConnection]:
    con = connect()
    try:
        attach(con, ALIAS, Lakes(config).source(), read_only=False, create=True)
    except ViaduckError as error:
        con.close()
        raise DependencyError("source", error.message, error.hint) from None
    try:
        yield con
    finally:
        detach(con, ALIAS)
        con.close()
