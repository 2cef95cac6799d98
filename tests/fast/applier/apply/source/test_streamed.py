"""Rows that are many are fetched as they are written."""

from __future__ import annotations

import time
from contextlib import closing

from services.applier.apply.source.carry import streamed
from services.applier.apply.source.reading import Reading
from shared.lake.catalog.reader import TableInfo
from shared.lake.connection.engine import connect

ROWS, ROW_BYTES = 1_000_000, 1_000.0
AHEAD = 300_000
"""Each of the two instances works on some thousand rows at once and has a megabyte of them wait."""


def test_no_more_than_is_written_is_fetched() -> None:
    """Otherwise a reading would be in memory twice: as its rows, and once more on their way."""
    with closing(connect(catalogs=())) as con, closing(connect(catalogs=())) as source:
        source.execute("CREATE SEQUENCE memory.main.fetched")
        table = TableInfo("", "t", 0, "topic id", "cluster", 0, ())
        reading = Reading(source, table, (), 0, only_inserts=False, routing="", keys=(), row_bytes=ROW_BYTES)
        with streamed(con, reading, f"SELECT nextval('memory.main.fetched') AS n FROM range({ROWS})") as rows:
            con.execute(f"SELECT n FROM {rows}").fetchmany(1)
            time.sleep(0.2)
            with closing(source.cursor()) as looking:
                ahead = looking.execute("SELECT last_value FROM duckdb_sequences()").fetchall()[0][0]
    assert 0 < ahead <= AHEAD
