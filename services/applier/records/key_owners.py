"""Whose each key of a batch is that is routed: its newest record tells.

A row is where the newest record of its key is routed to, and nowhere else. So a record deletes the row of its key at
every destination but its own, whether it goes to another one, to none, or has no value at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from services.applier.records.memory import BatchNames
from services.applier.records.staging import TargetColumn
from shared.lake.pruning import TEXT, is_harmless

Key = tuple[int, TargetColumn]
"""A key column with its number among the targets."""


@dataclass(frozen=True)
class KeyOwners:
    """The keys of all readable records of a batch, each once.

    ``rows`` has them as ``k0``, …, of these ``types``, in the order of the format's key columns, and beside them
    ``owner``, the routing value of the key's newest record, null where that has none.

    ``harmless`` tells for each key column whether all of it means itself in any query, ``staying`` for each routing
    value the places of its records whose key is its own in the end.
    """

    rows: pa.Table
    types: tuple[str, ...]
    harmless: tuple[bool, ...]
    staying: Mapping[str, Sequence[int]]
    tombstones: int
    """Records without a value."""


def find_owners(con: duckdb.DuckDBPyConnection, memory: BatchNames, keys: Sequence[Key], owner_text: str) -> None:
    """The readable records of a staged batch, as ``memory.owned``; ``owner_text`` is SQL for the text of their routing
    value. All records of a key are in one partition, so that their offsets tell the newest."""
    shown = ", ".join(f"{_shown(number, target)} AS k{place:d}" for place, (number, target) in enumerate(keys))
    same = ", ".join(f"c{number:d}" for number, _ in keys)
    con.execute(
        f"CREATE OR REPLACE TABLE {memory.owned} AS SELECT i, p, o, nothing, {shown}, {owner_text} AS value,"
        f" first_value({owner_text}) OVER (PARTITION BY {same} ORDER BY p DESC, o DESC) AS owner FROM {memory.staged}"
    )


def owners(con: duckdb.DuckDBPyConnection, memory: BatchNames, keys: Sequence[Key]) -> KeyOwners:
    """After ``find_owners``."""
    names = ", ".join(f"k{place:d}" for place in range(len(keys)))
    harmless = ", ".join(
        f"coalesce(bool_and({is_harmless(f'k{place:d}')}), true)" if target.type == TEXT else "true"
        for place, (_, target) in enumerate(keys)
    )
    groups = con.execute(
        f"SELECT value, list(i ORDER BY i) FROM {memory.owned} WHERE value = owner GROUP BY value"
    ).fetchall()
    tombstones, *plain = con.execute(f"SELECT count(*) FILTER (nothing), {harmless} FROM {memory.owned}").fetchall()[0]
    rows = con.execute(f"SELECT DISTINCT {names}, owner FROM {memory.owned}").to_arrow_table()
    return KeyOwners(rows, tuple(target.type for _, target in keys), tuple(plain), dict(groups), int(tombstones))


def listed(con: duckdb.DuckDBPyConnection, memory: BatchNames, keys: Sequence[Key]) -> pa.Table:
    """After ``find_owners``, every record: partition, offset, the text of its key, and its routing value."""
    texts = ", ".join(f"CAST(k{place:d} AS VARCHAR)" for place in range(len(keys)))
    key = f"CAST(to_json([{texts}]) AS VARCHAR)"
    return con.execute(f"SELECT p, o, {key} AS k, value AS v FROM {memory.owned}").to_arrow_table()


def keys_of(targets: Sequence[TargetColumn], names: Sequence[str]) -> list[Key]:
    """The key columns of these ``names``, in their order."""
    numbers = {target.name: number for number, target in enumerate(targets)}
    return [(numbers[name], targets[numbers[name]]) for name in names]


def _shown(number: int, target: TargetColumn) -> str:
    """JSON is staged as the text that it is."""
    return f"CAST(c{number:d} AS JSON)" if target.type == "JSON" else f"c{number:d}"
