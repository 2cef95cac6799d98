"""Rows of metadata tables that more than one kind of commit adds: text of constants, and the values that are bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.lake.connection.dialect import Dialect, timestamptz
from shared.lake.connection.query import Question, Value
from shared.lake.direct.state import (
    CURSOR_COLUMNS,
    CURSOR_TEXTS,
    SPELLED_CURSOR_COLUMNS,
    SPELLING,
    ColumnStats,
    NewestSnapshot,
)
from shared.lake.direct.written import NewDataFile

PLAIN, FLAG = "{}", "CAST(CAST({} AS INTEGER) AS {{boolean}})"
"""How a value stands in a row of VALUES; flags are numbers until the catalog's own type for them is reached."""

FILE_STATS = (PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, FLAG)
NEW_STATS = (PLAIN, PLAIN, FLAG, FLAG, PLAIN, PLAIN)

Names = Mapping[str, str]
"""What stands in the text of a question: the catalog's prefix, the dialect's words, and ``cursor_rows``."""


@dataclass(frozen=True)
class CommitMessage:
    author: str
    message: str
    extra_info: str


def claim(names: Names, dialect: Dialect, new: NewestSnapshot, now: datetime) -> Question:
    """The snapshot's number is its primary key, which decides between rivals. TLA: ``ClaimNumber``."""
    values: dict[str, Value] = {
        "new": new.id, "version": new.schema_version, "catalog": new.next_catalog_id, "file": new.next_file_id,
    }  # fmt: skip
    if not dialect.binary_text:
        values["now"] = timestamptz(now)
    when = "now()" if dialect.binary_text else ":now"
    text = (
        "INSERT INTO {}ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)"
        f" VALUES (:new, {when}, :version, :catalog, :file)"
    )
    return Question(text, names, values)


def changes(names: Names, snapshot: int, made: str, stamp: CommitMessage) -> Question:
    """What others' conflict checks and the change feed go by, and what the commit says of itself."""
    return Question(
        "INSERT INTO {}ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message,"
        " commit_extra_info) VALUES (:new, :changes, :author, :message, :extra)",
        names,
        {
            "new": snapshot,
            "changes": made,
            "author": stamp.author,
            "message": stamp.message,
            "extra": stamp.extra_info,
        },
    )


def cursor_values(cursor: Mapping[str, Any]) -> dict[str, Value]:
    """The cursor as its inlined row keeps it, by ``CURSOR_COLUMNS``, and ``SPELLING`` where it has one."""
    return {
        name: timestamptz(value) if isinstance(value := cursor[name], datetime) else value for name in _names_of(cursor)
    }


def _names_of(cursor: Mapping[str, Any]) -> tuple[str, ...]:
    return SPELLED_CURSOR_COLUMNS if SPELLING in cursor else CURSOR_COLUMNS


def cursor_row(names: Names, dialect: Dialect, row_id: int, snapshot: int, cursor: Mapping[str, Any]) -> Question:
    """The cursor's inlined row from ``snapshot`` on."""
    values: dict[str, Value] = {"row": row_id, "new": snapshot}
    for name, value in cursor_values(cursor).items():
        values[f"c_{name}"] = dialect.text_in(str(value)) if name in CURSOR_TEXTS else value
    columns = ", ".join(_names_of(cursor))
    places = ", ".join(f":c_{column}" for column in _names_of(cursor))
    return Question(
        f"INSERT INTO {{}}{{cursor_rows}} (row_id, begin_snapshot, {columns}) VALUES (:row, :new, {places})",
        names,
        values,
    )


def data_file(
    names: Names, file_id: int, table: int, snapshot: int, first_row: int, data: NewDataFile
) -> Iterator[Question]:
    """What the catalog says of a data file that ``snapshot`` adds, whose rows are numbered from ``first_row``."""
    values: dict[str, Value] = {
        "id": file_id,
        "table": table,
        "new": snapshot,
        "path": data.name,
        "records": data.records,
        "bytes": data.bytes,
        "footer": data.footer_bytes,
        "row": first_row,
    }
    yield Question(
        "INSERT INTO {}ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,"
        " file_format, record_count, file_size_bytes, footer_size, row_id_start) VALUES (:id, :table, :new, :path,"
        " CAST(1 AS {boolean}), 'parquet', :records, :bytes, :footer, :row)",
        names,
        values,
    )
    lines = [
        (file_id, table, c.column_id, c.bytes, c.values, c.nulls, c.least, c.greatest, number_of(c.has_nan))
        for c in data.columns
    ]
    if lines:
        yield Question(
            "INSERT INTO {}ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,"
            " value_count, null_count, min_value, max_value, contains_nan) VALUES " + places_of(FILE_STATS, len(lines)),
            names,
            values_of(lines),
        )


def new_table_stats(names: Names, table: int, records: int, size: int) -> Question:
    """What the catalog keeps of a table once it has its first ``records`` rows, in ``size`` bytes of files."""
    return Question(
        "INSERT INTO {}ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes)"
        " VALUES (:table, :records, :row, :bytes)",
        names,
        {"table": table, "records": records, "row": records, "bytes": size},
    )


def new_column_stats(names: Names, stats: Mapping[tuple[int, int], ColumnStats]) -> Question:
    """What the catalog keeps of columns, by ids of table and column, of which it kept nothing before."""
    return Question(
        "INSERT INTO {}ducklake_table_column_stats"
        " (table_id, column_id, contains_null, contains_nan, min_value, max_value) VALUES "
        + places_of(NEW_STATS, len(stats)),
        names,
        values_of([stats_row(key, each) for key, each in stats.items()]),
    )


def places_of(shape: Sequence[str], count: int) -> str:
    """The rows of a VALUES list; ``values_of`` names what goes into them."""
    lines = [[part.format(f":v{r:d}_{c:d}") for c, part in enumerate(shape)] for r in range(count)]
    return ", ".join(f"({', '.join(line)})" for line in lines)


def values_of(lines: Sequence[Sequence[Value]]) -> dict[str, Value]:
    return {f"v{r}_{c}": value for r, row in enumerate(lines) for c, value in enumerate(row)}


def number_of(flag: bool | None) -> int | None:
    return None if flag is None else int(flag)


def stats_row(key: tuple[int, int], stats: ColumnStats) -> tuple[Value, ...]:
    return (*key, number_of(stats.contains_null), number_of(stats.contains_nan), stats.least, stats.greatest)
