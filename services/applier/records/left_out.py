"""Values that an update left out because it did not change them: an earlier record of its key has them, or its row.

Records of a key follow each other by partition and offset. Whatever stands before a delete, an insert or a row that got
another key is void, so no value is taken from beyond one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from services.applier.records.key_owners import keys_of
from services.applier.records.memory import BatchNames
from services.applier.records.staging import SHAPE, TargetColumn
from shared.lake.catalog.reader import Column


@dataclass(frozen=True)
class Asking:
    """The rows of a batch that the destination's own ones have to complete, in the table ``name``.

    Its columns: ``place`` of the record, ``k0``, … the key, ``wanted`` the numbers of the columns without a value, and
    ``fields`` (name, at) what was left out, with the number of the column that takes the field as a whole, or null.
    """

    name: str
    count: int
    wanted: tuple[int, ...]
    """Numbers of all columns that some row asks for."""


def is_any(con: duckdb.DuckDBPyConnection, memory: BatchNames) -> bool:
    return bool(con.execute(f"SELECT count(left_out) FROM {memory.staged}").fetchall()[0][0])


def complete(con: duckdb.DuckDBPyConnection, memory: BatchNames, targets: Sequence[TargetColumn]) -> None:
    """Takes what earlier records of the batch have; ``left_out`` then names what only the destination may have, where
    ``epoch`` is 0, and what is nowhere, where it is not."""
    names = [name for (name,) in con.execute(f"SELECT DISTINCT unnest(left_out) FROM {memory.staged}").fetchall()]
    places = list(_places(targets, names))
    taken = [
        f"CASE WHEN {_is_left(place)} THEN l{place:d}.c{number:d} ELSE c{number:d} END AS c{number:d}"
        for number, place in places
    ]
    found = ", ".join(f"CASE WHEN l{place:d} IS NOT NULL THEN $n{place:d} END" for place in range(len(names)))
    left = f"nullif(list_filter(left_out, lambda x: NOT coalesce(list_contains([{found}], x), false)), [])"
    excluded = ", ".join(f"l{place:d}" for place in range(len(names)))
    replaced = ", ".join([*taken, f"{_rescued(len(names))} AS rescued", f"{left} AS left_out"])
    keys = _keys(targets)
    con.execute(
        f"CREATE OR REPLACE TABLE {memory.staged} AS SELECT * EXCLUDE ({excluded}) REPLACE ({replaced})"
        f" FROM (SELECT *, {_latest(places, len(names))}"
        f" FROM (SELECT *, count(*) FILTER (nothing OR begins) OVER (PARTITION BY {keys} ORDER BY p, o, s) AS epoch"
        f" FROM {memory.staged}) WINDOW before AS (PARTITION BY {keys}, epoch ORDER BY p, o, s))",
        {f"n{place}": name for place, name in enumerate(names)},
    )


def lost(con: duckdb.DuckDBPyConnection, newest: str) -> list[int]:
    """Places of the records of ``newest`` whose values are nowhere."""
    rows = con.execute(f"SELECT i FROM {newest} WHERE left_out IS NOT NULL AND epoch > 0").fetchall()
    return [place for (place,) in rows]


def ask(
    con: duckdb.DuckDBPyConnection,
    memory: BatchNames,
    newest: str,
    targets: Sequence[TargetColumn],
    columns: Sequence[Column],
    key_columns: Sequence[str],
) -> Asking | None:
    """What of the rows of ``newest`` the destination has to tell, by its keys in this order; None where nothing."""
    at = {column.name: number for number, column in enumerate(columns)}
    homes = [(target.path[0], at[target.name], target.is_field) for target in targets if target.path]
    keys = ", ".join(f"c{n:d} AS k{place:d}" for place, (n, _) in enumerate(keys_of(targets, key_columns)))
    con.execute(
        f"CREATE OR REPLACE TABLE {memory.asking} AS SELECT i AS place, {keys},"
        " list_filter(CAST($numbers AS INTEGER[]), lambda n, j: list_contains(left_out, CAST($names AS VARCHAR[])[j]))"
        " AS wanted, list_transform(left_out, lambda x: {'name': x, 'at': CAST($wholes AS INTEGER[])"
        f"[list_position(CAST($whole AS VARCHAR[]), x)]}}) AS fields FROM {newest} WHERE left_out IS NOT NULL",
        {
            "names": [name for name, _, _ in homes],
            "numbers": [number for _, number, _ in homes],
            "whole": [name for name, _, is_whole in homes if is_whole],
            "wholes": [number for _, number, is_whole in homes if is_whole],
        },
    )
    wanted = con.execute(f"SELECT DISTINCT unnest(wanted) FROM {memory.asking} ORDER BY 1").fetchall()
    count = con.execute(f"SELECT count(*) FROM {memory.asking}").fetchall()[0][0]
    return Asking(memory.asking, int(count), tuple(number for (number,) in wanted)) if count else None


def _places(targets: Sequence[TargetColumn], names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The targets that take something of a field, and the field's place among the names."""
    for number, target in enumerate(targets):
        if target.path and target.path[0] in names:
            yield number, names.index(target.path[0])


def _is_left(place: int) -> str:
    return f"coalesce(list_contains(left_out, $n{place:d}), false)"


def _latest(places: Sequence[tuple[int, int]], count: int) -> str:
    """``l0``, …: what the latest record has that has the field, and came after anything that voids it."""
    return ", ".join(
        f"last_value(CASE WHEN NOT nothing AND NOT {_is_left(each)} THEN struct_pack({_of_field(places, each)}) END"
        f" IGNORE NULLS) OVER before AS l{each:d}"
        for each in range(count)
    )


def _of_field(places: Sequence[tuple[int, int]], wanted: int) -> str:
    own = (f", c{number:d} := c{number:d}" for number, place in places if place == wanted)
    return "rescued := rescued" + "".join(own)


def _rescued(count: int) -> str:
    """With what was rescued of the fields that are taken."""
    entries = f"coalesce(map_entries(from_json(rescued, {SHAPE})), [])"
    for place in range(count):
        own = f"list_filter(map_entries(from_json(l{place:d}.rescued, {SHAPE})), lambda e: e.key = $n{place:d})"
        entries = f"list_concat({entries}, CASE WHEN {_is_left(place)} THEN {own} END)"
    return (
        "CASE WHEN left_out IS NULL THEN rescued ELSE"
        f" CAST(nullif(CAST(to_json(map_from_entries({entries})) AS VARCHAR), '{{}}') AS VARCHAR) END"
    )


def _keys(targets: Sequence[TargetColumn]) -> str:
    return ", ".join(f"c{number:d}" for number in _key_numbers(targets))


def _key_numbers(targets: Sequence[TargetColumn]) -> list[int]:
    return [number for number, target in enumerate(targets) if target.is_key]
