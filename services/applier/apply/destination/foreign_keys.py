"""Keys of records that went elsewhere: which of them a destination has rows of.

Only these are deleted: each destination would else get a snapshot for every record of any other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from services.applier.apply.cursor.decide import Decision, decide
from services.applier.apply.destination.lake_state import stored_cursor, table_look
from services.applier.apply.destination.table_schema import columns_of, table_path
from services.applier.model.task import Target
from shared.lake.attached.pool import OpenLake
from shared.lake.pruning import FileLayout, comparison, may_prune
from shared.lake.sql import ident, path
from shared.lake.table import require_table

COMING, KEYS = "_viaduck_keys_of_all", path("temp", "main", "_viaduck_foreign_keys")


@dataclass(frozen=True)
class KeysOfRange:
    """The keys of a range: ``rows`` has ``k0``, … and ``owner``, the routing value that each key ends at or null.

    ``names`` and ``types`` are those of the key columns; ``harmless`` tells whether all of a column means itself in any
    query.
    """

    rows: pa.Table
    names: tuple[str, ...]
    types: tuple[str, ...]
    harmless: tuple[bool, ...]

    def elsewhere(self, routing_value: str) -> pa.Table:
        """The keys that end elsewhere than at a routing value, or nowhere."""
        owners = self.rows.column("owner")
        others = pc.fill_null(pc.not_equal(owners, routing_value), True)
        return self.rows.filter(others).select([f"k{place:d}" for place in range(len(self.names))])


def foreign_keys(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, keys: KeysOfRange) -> pa.Table:
    """The keys that end elsewhere than at the target, of which its table has rows. ``con`` is in a transaction.

    The rows are deleted in a later one, if they are: after the compare-and-set of the cursor there, which passes only
    where the item begins. Positions of a generation only grow, and every commit of ours moves the cursor. So if it is
    where the item begins here and there, nothing of ours came in between. Where it is elsewhere here, no key is left
    out: it may come to be there before the rows are deleted.

    Where no key is found and no record is the target's own, nothing is committed, and the next item goes on behind this
    one. A late commit of a beginning of it can't add a row in between: it has no record of the target's either.
    """
    declared = _numbered(keys.types, "CAST(k{0} AS {1}) AS k{0}")
    names = _numbered(keys.types, "x.k{0}")
    con.register(COMING, keys.rows)
    try:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {KEYS} AS SELECT {declared} FROM {path('temp', 'main', COMING)}"
            " WHERE owner IS DISTINCT FROM $value",
            {"value": target.destination.routing_value},
        )
    finally:
        con.unregister(COMING)
    cursor = stored_cursor(con, lake, target)
    if cursor is None or decide(cursor, target.item) is not Decision.APPLY:
        return con.execute(f"SELECT {names} FROM {KEYS} AS x").to_arrow_table()
    table = table_path(lake.alias, target.destination)
    require_table(con, table)
    if columns_of(con, table) is None:
        return con.execute(f"SELECT {names} FROM {KEYS} AS x LIMIT 0").to_arrow_table()
    layout = table_look(con, lake, target.destination)[1].layout
    same = " AND ".join(_same(keys, place, layout) for place in range(len(keys.names)))
    return con.execute(f"SELECT DISTINCT {names} FROM {table} AS t JOIN {KEYS} AS x ON {same}").to_arrow_table()


def _same(keys: KeysOfRange, place: int, layout: FileLayout) -> str:
    declared = keys.types[place]
    prune = may_prune(declared, layout, harmless=keys.harmless[place])
    return comparison(f"t.{ident(keys.names[place])}", f"x.k{place:d}", declared, prune=prune)


def _numbered(types: Sequence[str], pattern: str) -> str:
    return ", ".join(pattern.format(place, declared) for place, declared in enumerate(types))
