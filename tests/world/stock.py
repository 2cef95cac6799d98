"""A stock reader: somebody else's DuckDB, which knows nothing of our settings, looks back at a destination's snapshots.

DuckLake holds a table's past against its present statistics (H1). Our own connections are set not to, so that nothing
which they compare can tell whether *we* have made the past wrong for everybody else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import duckdb

from tests.world.duck import EXTENSIONS, extension, name, quote
from tests.world.lake import Lake, attach, look_again
from tests.world.rows import Column, Row, rows_of, text_of

TIMES = name("times that it is there")

COMPARED = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "VARCHAR", "DATE", "TIMESTAMP", "BOOLEAN")
"""Columns that are filtered and sorted: of these DuckLake keeps the least and the greatest value."""


MOST = 50
"""Columns of a table that are asked for one by one: of a thousand only some, among them each type."""

HARMLESS = re.compile(r"[\w .:+-]{0,200}")
"""Values that a stock reader can ask for; others are changed in the query that lists the files (H16)."""

WIDER_SINCE = "SetMin or SetMax called with Value that does not match statistics"
"""What DuckDB says of a filter on the past of a column whose type has become wider since, in any lake (H1)."""


@contextmanager
def stock_reader(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """An instance as DuckDB makes it, with ``lake`` attached as ``stock``, in a transaction (``looked_at``)."""
    with closing(duckdb.connect(":memory:", config={"allow_unsigned_extensions": True})) as con:
        for each in EXTENSIONS:
            con.execute(f"LOAD {quote(str(extension(each)))}")
        con.execute("SET TimeZone = 'UTC'")
        attach(con, "stock", lake, read_only=True)
        con.execute("BEGIN")
        yield con


def disagreements(
    stock: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[Column],
    rows: Counter[Row],
    *,
    filtered: bool = True,
) -> list[str]:
    """What a stock reader finds otherwise than ``rows``, which are all of ``table`` (``AT`` and all).

    Not ``filtered``: the owner has made ``bucket()`` partitions, by which DuckLake itself leaves files out (H17).
    """
    found = [] if rows_of(stock, table, columns) == rows else ["reads other rows"]
    for number, column in list(enumerate(columns))[:: 1 + len(columns) // MOST]:
        if column.type in COMPARED:
            values = Counter(row[number] for row in rows.elements())
            try:
                found += _by_column(stock, table, column, values, filtered=filtered)
            except duckdb.InvalidInputException as error:  # a group beyond those that statistics allow
                look_again(stock)
                found.append(f"can't read {column.name}: {error}")
    return found


def _by_column(
    stock: duckdb.DuckDBPyConnection, table: str, column: Column, values: Counter[str | None], *, filtered: bool
) -> Iterator[str]:
    plain, text = name(column.name), text_of(column)
    groups = f"SELECT {plain}, count(*) FROM {table} GROUP BY 1"
    grouped = stock.execute(f"SELECT {text}, {TIMES} FROM ({groups}) AS g({plain}, {TIMES})").fetchall()
    if Counter(dict(grouped)) != values:
        yield f"groups by {column.name} otherwise"
    ordered = stock.execute(f"SELECT {text} FROM (SELECT {plain} FROM {table} ORDER BY {plain})").fetchall()
    if Counter(value for (value,) in ordered) != values:
        yield f"finds other values when it sorts by {column.name}"
    for value in _outermost(column, values) if filtered else ():
        same = f"SELECT count(*) FROM {table} WHERE {plain} = CAST(? AS {column.type})"
        try:
            ((times,),) = stock.execute(same, [value]).fetchall()
        except duckdb.InternalException as error:
            if WIDER_SINCE not in str(error):
                raise
            look_again(stock)
            return
        if times != values[value]:
            yield f"misses rows where {column.name} is {value!r}"


def _outermost(column: Column, values: Counter[str | None]) -> list[str]:
    """The least and the greatest value, as texts and as what they stand for: those that wrong bounds lose first."""
    told = sorted(value for value in values if value is not None and HARMLESS.fullmatch(value))
    numbers = sorted(told, key=int) if column.type.endswith("INT") or column.type == "INTEGER" else []
    return sorted({*told[:1], *told[-1:], *numbers[:1], *numbers[-1:]})
