"""A look at the source before work begins: can it be read, and does the file fit it.

Whatever only the source can tell is told here, once, in the same words for ``check``, ``up`` and every service.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import ConfigError, SourceError, ViaduckError
from shared.lake.catalog.reader import CatalogReader, Column, Head, TableInfo
from shared.lake.connection.engine import connect
from shared.lake.routing_value import not_routed, spelled
from shared.lake.types import not_carried

AS_SOURCE = {"destination_unreachable": "source_unreachable", "destination_busy": "source_unreachable"}
"""What ``shared.lake`` says of any lake → what it means of the source."""

ROUNDED = {r"U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(.*\)": "DECIMAL(38, 12)", "DATE": "TIMESTAMP"}
"""Types to which DuckDB casts text by rounding it: 1.5 would be the INTEGER 2, an hour its DATE."""


@dataclass(frozen=True)
class SourceLook:
    """The source as it was found, fit for its file. ``routing_values`` are by destination id, in canonical text.

    Of a topic there is no ``lake``, the head's number counts its records, and it has ``partitions``.
    """

    lake: ResolvedLake | None
    head: Head
    table: TableInfo
    routing: Column
    keys: tuple[Column, ...]
    routing_values: Mapping[str, str]
    partitions: int | None = None


def look_at_lake(config: Config, environ: Mapping[str, str] = os.environ) -> SourceLook:
    """Read the source's metadata and hold the file against it.

    Raises ``ConfigError`` for what the file must say otherwise, ``SourceError`` where the source can't be read now.
    """
    lake = _source_lake(config, environ)
    head, table = _read(config, lake)
    mistakes = [*column_mistakes(table), *_name_mistakes(config, table)]
    if mistakes:
        raise ConfigError(mistakes)
    routing, keys = _named(table, config.routing.field), [_named(table, key) for key in config.routing.key_columns]
    if (why := not_routed(routing.name, routing.type)) is not None:
        raise ConfigError([f"routing.field: {why}"])
    return SourceLook(lake, head, table, routing, tuple(keys), values_by_id(config, routing))


def values_by_id(config: Config, routing: Column) -> dict[str, str]:
    """The routing values of the file's destinations, in the spelling that the routing column's type gives them.

    Raises ``ConfigError`` where a text is no value of the type, or two destinations have the same value.
    """
    values = canonical_values(routing.type, [each.routing_value for each in config.destinations])
    mistakes = _value_mistakes(config, routing, values)
    if mistakes:
        raise ConfigError(mistakes)
    ids = [each.id for each in config.destinations]
    return {name: value for name, value in zip(ids, values, strict=True) if value is not None}


def canonical_values(declared: str, values: Sequence[str]) -> list[str | None]:
    """Each value in the spelling that a column of the ``declared`` type gives it; None if it does not fit.

    What the type would only hold rounded is not a value of the column either.
    """
    if declared.upper() == "VARCHAR" or not values:
        return list(values)  # as it is; and an instance of DuckDB costs more than all the rest of adding a destination
    cast = f"TRY_CAST(value AS {declared})"
    exact = _exact_type(declared)
    kept = "true" if exact is None else f"TRY_CAST(value AS {exact}) IS NOT DISTINCT FROM TRY_CAST({cast} AS {exact})"
    sql = f"SELECT CASE WHEN {kept} THEN {spelled(cast, declared)} END FROM (SELECT unnest(?::VARCHAR[]) AS value)"
    with closing(connect()) as con:
        return [row[0] for row in con.execute(sql, [list(values)]).fetchall()]


def column_mistakes(table: TableInfo) -> list[str]:
    """Columns that can't be carried, or not be told from the feed's own."""
    found = (not_carried(column.name, column.type) for column in table.columns)
    return [f"source.table: {why}" for why in found if why is not None]


def _source_lake(config: Config, environ: Mapping[str, str]) -> ResolvedLake:
    try:
        return Lakes(config, environ).source()
    except ViaduckError as error:
        raise ConfigError([f"source: {error.message}; {error.hint}"]) from None


def _read(config: Config, lake: ResolvedLake) -> tuple[Head, TableInfo]:
    source = config.source
    try:
        with closing(CatalogReader(lake)) as catalog:
            head = catalog.head()
            table = catalog.source_table(source.schema_name, source.table, head.snapshot)
            if table is None:
                raise ConfigError([_no_table(config, catalog)])
    except LookupError as error:
        raise SourceError("source_unreachable", f"the source: {error}", "wait until its lake exists") from None
    except ViaduckError as error:
        raise SourceError(AS_SOURCE.get(error.type, error.type), f"the source: {error.message}", error.hint) from None
    return head, table


def _no_table(config: Config, catalog: CatalogReader) -> str:
    source = config.source
    there = [f"{schema}.{table}" for schema, table in catalog.tables()]
    wanted = f"{source.schema_name}.{source.table}"
    return f"source.table: the source has no table {wanted}{_instead(wanted, there, 'tables')}"


def _name_mistakes(config: Config, table: TableInfo) -> list[str]:
    named = [("routing.field", config.routing.field)]
    named += [(f"routing.key_columns[{number}]", key) for number, key in enumerate(config.routing.key_columns)]
    return [
        f"{where}: the source table has no column {name}{_instead(name, table.column_names, 'columns')}"
        for where, name in named
        if table.identified(name) is None
    ]


def _named(table: TableInfo, name: str) -> Column:
    column = table.identified(name)
    if column is None:
        raise KeyError(name)
    return column


def _value_mistakes(config: Config, routing: Column, values: Sequence[str | None]) -> list[str]:
    lines: list[str] = []
    first: dict[str, int] = {}
    for number, (value, destination) in enumerate(zip(values, config.destinations, strict=True)):
        where, written = f"destinations[{number}].routing_value", destination.routing_value
        if value is None:
            lines.append(f"{where}: {written!r} is no {routing.type}, the type of {routing.name}; change it")
        elif value in first:
            other = config.destinations[first[value]]
            lines.append(
                f"{where}: {written!r} is the same {routing.type} as {other.routing_value!r} of"
                f" destinations[{first[value]}]; every destination needs a value of its own"
            )
        else:
            first[value] = number
    return lines


def _exact_type(declared: str) -> str | None:
    """A type that keeps what a cast of text to the ``declared`` one would round away; None where nothing is."""
    return next((exact for pattern, exact in ROUNDED.items() if re.fullmatch(pattern, declared, re.IGNORECASE)), None)


def _instead(name: str, there: Sequence[str], kind: str) -> str:
    lowered = {each.lower(): each for each in there}
    near = difflib.get_close_matches(name.lower(), lowered, 1)
    if near:
        return f"; did you mean {lowered[near[0]]}?"
    return f"; its {kind} are: {', '.join(sorted(there)[:20])}" if there else f"; it has no {kind} yet"
