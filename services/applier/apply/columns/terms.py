"""Gives a destination's table the source's NOT NULL, defaults and comments, in the transaction that is under its rows.

What DuckLake refuses of that is left as it is and said in the stamp: ``SET NOT NULL`` is refused where the table has no
statistics of a column. Such a refusal does not end the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import duckdb

from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.destination.table_schema import table_path
from services.applier.apply.source.reading import Reading
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.catalog.reader import Column
from shared.lake.columns.followed import whose
from shared.lake.columns.history import Field
from shared.lake.columns.terms import (
    NO_COMMENTS,
    NOTHING,
    Carried,
    Clause,
    Described,
    TermKind,
    created,
    not_carried,
    to_carry,
)
from shared.lake.failure import first_lines
from shared.lake.sql import ident, literal, path

REFUSED = (duckdb.CatalogException, duckdb.BinderException)
"""After these a transaction goes on."""

LONGEST_REASON = 200


def pending(lake: OpenLake, change: DestinationChange, have: Sequence[Column], at: int) -> Carried:
    """What is to be done of it in a table that has these columns in the lake's snapshot ``at``."""
    wanted = change.wanted
    if wanted is None or change.reading is None:
        return NOTHING
    if not change.carries:
        return Carried(tuple(_of_rows(change, change.reading, have, wanted)))
    return due(change, _described(lake, change.target.destination, at))


def due(change: DestinationChange, own: Described) -> Carried:
    """What is to be done of it in a table that is described so, where anything may be new."""
    wanted = change.wanted
    if wanted is None or not change.carries:
        return NOTHING
    then = wanted.fields if change.evolution is None else change.evolution.then
    theirs = whose(own.fields, then, wanted.fields)
    return NOTHING if theirs is None else to_carry(own, theirs, wanted, change.comments_before)


def of_seed(lake: OpenLake, change: DestinationChange, *, is_new: bool) -> Carried:
    """The same of a table that a seed fills, which has the source's columns by now."""
    wanted = change.wanted
    if wanted is None:
        return NOTHING
    if is_new:
        return to_carry(created(wanted), wanted.fields, wanted)
    own = _described(lake, change.target.destination, lake.catalog.head().snapshot)
    return to_carry(own, wanted.fields, wanted)


def columns_of_seed(change: DestinationChange, reading: Reading) -> tuple[Column, ...]:
    """The columns of a new table: NOT NULL from the first, since DuckLake refuses it later to one without rows."""
    wanted = change.wanted
    required = {field.name for field in wanted.fields if field.terms.required} if wanted is not None else set[str]()
    return tuple(replace(column, not_null=column.name in required) for column in reading.columns)


def carry(con: duckdb.DuckDBPyConnection, alias: str, destination: Destination, clauses: Sequence[Clause]) -> list[str]:
    """Returns what was done, in words, and what was not."""
    said = list[str]()
    for clause in clauses:
        try:
            con.execute(_statement(clause, table_path(alias, destination)))
        except REFUSED as error:
            said.append(not_carried(clause.said, first_lines(error)[:LONGEST_REASON]))
        else:
            said.append(clause.said)
    return said


def lacks(change: DestinationChange, fields: Sequence[Field]) -> bool:
    """Whether a table with the source's columns allows NULLs where the source allows none, and the change brings rows:
    DuckLake looks at the rows themselves in a transaction that inserts some."""
    wanted = change.wanted
    if wanted is None or not change.counts.upserts:
        return False
    return any(
        theirs.terms.required and not own.terms.required for theirs, own in zip(wanted.fields, fields, strict=False)
    )


def _of_rows(
    change: DestinationChange, reading: Reading, have: Sequence[Column], wanted: Described
) -> Iterator[Clause]:
    """NOT NULL that DuckLake has refused before is set with rows. Where the lake's owner has set it, and the source has
    not, it goes as soon as a row asks for that."""
    if not change.counts.upserts:
        return
    both = list(zip(wanted.fields, have, strict=False))
    hard = [field.name for field, own in both if own.not_null and not field.terms.required]
    counts = reading.nulls(change.number, hard)
    yield from (Clause(TermKind.LOOSEN, name) for name, count in zip(hard, counts, strict=True) if count)
    yield from (
        Clause(TermKind.REQUIRE, field.name) for field, own in both if field.terms.required and not own.not_null
    )


def _described(lake: OpenLake, destination: Destination, at: int) -> Described:
    """A destination's table as its catalog has it; without columns where it is not there."""
    table = lake.catalog.table(destination.schema_name, destination.table, at)
    if table is None:
        return Described((), NO_COMMENTS)
    return Described(table.fields, lake.catalog.comments(table.table_id, at))


def _statement(clause: Clause, table: str) -> str:
    value = "NULL" if clause.value is None else literal(clause.value)
    if clause.column is None:
        return f"COMMENT ON TABLE {table} IS {value}"
    column = f"ALTER TABLE {table} ALTER COLUMN {ident(clause.column)}"
    match clause.kind:
        case TermKind.LOOSEN:
            return f"{column} DROP NOT NULL"
        case TermKind.REQUIRE:
            return f"{column} SET NOT NULL"
        case TermKind.DEFAULT:
            return f"{column} DROP DEFAULT" if clause.value is None else f"{column} SET DEFAULT {value}"
        case TermKind.COMMENT:
            return f"COMMENT ON COLUMN {table}.{path(clause.column)} IS {value}"
