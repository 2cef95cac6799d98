"""The demo's play, against a source lake and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from viaduck_demo.flights import ACTUAL, COLUMNS, FlightPlay, carriers, days

DAY = date(2013, 7, 1)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect()) as con:
        yield con


@pytest.fixture
def play(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> FlightPlay:
    """Of the test's own: a day that was played is not played again, and columns that were renamed stay so."""
    lake = ResolvedLake(f"sqlite:{tmp_path}/s.sqlite", data_path=f"{tmp_path}/data")
    attach(con, "lake", lake, read_only=False, create=True)
    play = FlightPlay(con, "lake")
    play.seed(date(2013, 6, 30))
    return play


def count(con: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(con.execute(f"SELECT count(*) FROM {query}").fetchall()[0][0])


def test_the_sixteen_carriers_are_the_tenants(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    assert len(carriers()) == 16
    before_it = "flight_date <= '2013-06-30'"
    flown = count(con, f"year_of_flights WHERE {before_it} AND dep_time IS NOT NULL")
    assert count(con, f"lake.flights WHERE {before_it}") == flown
    found = con.execute("SELECT DISTINCT carrier FROM lake.flights ORDER BY 1").fetchall()
    assert [row[0] for row in found] == sorted(carriers())


def test_the_data_is_whole_and_its_key_is_a_key(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    assert count(con, "year_of_flights") == 336_776
    assert count(con, "(SELECT DISTINCT flight_id FROM year_of_flights)") == 336_776


def test_a_day_is_four_commits_and_tells_its_story(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    of_day = f"lake.flights WHERE flight_date = '{DAY}'"
    story = play.day(DAY)
    began = play.head()

    assert next(story).rows == count(con, of_day) == count(con, f"year_of_flights WHERE flight_date = '{DAY}'")
    assert count(con, f"{of_day} AND dep_time IS NOT NULL") == 0

    handed = next(story).rows
    moved = "lake.flights f JOIN year_of_flights y USING (flight_id) WHERE f.carrier <> y.carrier"
    assert 0 < handed == count(con, moved)

    next(story)
    assert count(con, f"{of_day} AND dep_time IS NOT NULL") > 0
    assert count(con, f"{of_day} AND dep_time IS NULL") > 0

    next(story)
    assert count(con, f"{of_day} AND dep_time IS NULL") == 0
    assert play.head() - began == 4


def test_after_a_day_everything_is_as_it_happened(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    for _ in play.day(date(2013, 7, 2)):
        pass
    names = ", ".join(name for name in COLUMNS if name != "carrier")
    is_day = "flight_date = '2013-07-02'"
    happened = f"year_of_flights WHERE {is_day} AND dep_time IS NOT NULL"
    assert set(ACTUAL) < set(COLUMNS)
    held = f"SELECT {names} FROM lake.flights WHERE {is_day}"
    assert count(con, f"({held} EXCEPT ALL SELECT {names} FROM {happened})") == 0
    assert count(con, f"lake.flights WHERE {is_day}") == count(con, happened)


def test_compaction_changes_no_row(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    day = date(2013, 7, 3)
    for _ in play.day(day):
        pass
    con.execute("CREATE OR REPLACE TEMP TABLE before AS SELECT * FROM lake.flights")
    head = play.head()
    play.tidy_up(day)
    assert play.head() > head
    assert count(con, "(FROM before EXCEPT ALL FROM lake.flights)") == 0
    assert play.rows() == count(con, "before")


def test_columns_are_renamed_and_added_while_flights_go_on(con: duckdb.DuckDBPyConnection, play: FlightPlay) -> None:
    day = date(2013, 7, 4)
    story = play.day(day)
    next(story)
    assert [each.what for each in play.restructure(day)] == [
        "the column air_time renamed to minutes_in_the_air", "the column on_time added",
    ]  # fmt: skip
    for _ in story:
        pass
    for _ in play.day(date(2013, 7, 5)):
        pass
    of_days = "lake.flights WHERE flight_date BETWEEN '2013-07-04' AND '2013-07-05'"
    known = "on_time IS NOT DISTINCT FROM (arr_delay <= 15)"
    assert count(con, of_days) == count(con, f"{of_days} AND {known}") > 0
    same = "lake.flights f JOIN year_of_flights y USING (flight_id) WHERE f.flight_date BETWEEN '2013-07-04' AND"
    flown = f"{same} '2013-07-05' AND f.minutes_in_the_air IS NOT DISTINCT FROM y.air_time"
    assert count(con, of_days) == count(con, flown)
    assert count(con, "lake.flights WHERE flight_date < '2013-07-04' AND on_time IS NOT NULL") == 0


def test_the_play_ends_with_the_year() -> None:
    assert days(date(2013, 12, 30), 10) == [date(2013, 12, 30), date(2013, 12, 31)]
