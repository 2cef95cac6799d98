"""Makes the columns of a destination's table what the source's are, in the transaction that brings their rows.

The order is DuckLake's: touched keys are deleted before, by the names that were, and rows are inserted after. Nothing
is updated or merged once a column is wider, and a struct that is added is added in its final form
(docs/explanation/hazards.md, H26).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb

from services.applier.apply.destination.table_schema import table_path
from services.applier.apply.source.reading import Reading
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.catalog.reader import Column
from shared.lake.checks.table_mismatch import differs, how_to_release
from shared.lake.columns.evolution import ColumnStep, NotFollowed, StepKind, steps_between
from shared.lake.columns.followed import ColumnEvolution
from shared.lake.columns.history import Field
from shared.lake.columns.owners import Altered
from shared.lake.columns.step_statements import statement_of
from shared.lake.direct.files import duckdb_types
from shared.lake.failure import classify

REFUSED = (
    duckdb.CatalogException, duckdb.BinderException, duckdb.NotImplementedException, duckdb.InvalidInputException,
)  # fmt: skip


def pending_steps(
    con: duckdb.DuckDBPyConnection,
    destination: Destination,
    have: Sequence[Column],
    reading: Reading,
    evolution: ColumnEvolution | None,
    altered: Altered | None = None,
) -> tuple[ColumnStep, ...]:
    """What a table that has some columns still lacks of the reading's, which are the source's at the range's end.

    Raises ``table_mismatch`` unless the table has the columns that the source had at the destination's position: then
    whose is whose is known by their order. Columns that were added there without a row may still be missing.
    """
    if evolution is None:
        return _added(destination, have, reading, altered)
    then = evolution.then[: len(have)]
    spelled = duckdb_types(con, then) if then else ()
    if [(c.name, c.type) for c in have] == list(zip((field.name for field in then), spelled, strict=True)):
        return _steps(then, evolution)
    if _shapes(have) == _shapes(reading.columns):
        return ()  # the owner of the lake has done it
    before = [Column(field.name, declared) for field, declared in zip(then, spelled, strict=True)]
    raise differs("table_mismatch", destination, have, before, altered)


def evolve(con: duckdb.DuckDBPyConnection, alias: str, destination: Destination, steps: Sequence[ColumnStep]) -> None:
    """Take the steps. Raises ``schema_change`` for a step that DuckLake refuses, with the statement.

    TLA: ``CommitColumns``, ``Evolved``.
    """
    for step in steps:
        statement = statement_of(step, table_path(alias, destination))
        try:
            con.execute(statement)
        except REFUSED as error:
            raise _refused(destination, step, error) from None


def shown(steps: Sequence[ColumnStep]) -> list[str]:
    """What a stamp says of them."""
    return [step.said for step in steps if step.said]


def names_before(evolution: ColumnEvolution | None, names: Sequence[str]) -> tuple[str, ...]:
    """What columns were called at the destination's position that have these names now."""
    if evolution is None:
        return tuple(names)
    ids = {field.name.lower(): field.id for field in evolution.now}
    former = {field.id: field.name for field in evolution.then}
    return tuple(former.get(ids[name.lower()], name) for name in names)


def _added(
    destination: Destination, have: Sequence[Column], reading: Reading, altered: Altered | None
) -> tuple[ColumnStep, ...]:
    """Columns that a source without field ids has gained, and wider types that its rows ask for."""
    wider = {column.name: column.type for column in reading.promotions}
    widened = [replace(column, type=wider.get(column.name, column.type)) for column in have]
    wanted = reading.columns
    if _shapes(widened) != _shapes(wanted[: len(have)]):
        raise differs("table_mismatch", destination, have, wanted, altered)
    added = tuple(
        ColumnStep(
            StepKind.ADD, (each.name,), 0, type=each.type, default=each.default, said=f"add {each.name} {each.type}"
        )
        for each in wanted[len(have) :]
    )
    return added + tuple(
        ColumnStep(StepKind.WIDEN, (was.name,), 0, type=now.type, said=f"widen {was.name} to {now.type}")
        for was, now in zip(have, widened, strict=True)
        if was.type != now.type
    )


def _steps(then: Sequence[Field], evolution: ColumnEvolution) -> tuple[ColumnStep, ...]:
    try:
        return steps_between(then, evolution.now)
    except NotFollowed as why:
        raise DestinationError("schema_change", str(why), "reseed the destination") from None


def _refused(destination: Destination, step: ColumnStep, error: duckdb.Error) -> DestinationError:
    """By what DuckLake says of it. A column that a table is partitioned or sorted by can't be dropped."""
    said = classify(error, f"{step.said or step.kind} of {destination.key}").message
    hint = "reseed the destination"
    if "partition" in str(error).lower():
        hint = how_to_release(destination, "PARTITIONED")
    elif "sort" in str(error).lower():
        hint = how_to_release(destination, "SORTED")
    return DestinationError("schema_change", said, hint)


def _shapes(columns: Sequence[Column]) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]
