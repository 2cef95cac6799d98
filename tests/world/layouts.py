"""How a table's files may be laid out, by the owner of the source or of a destination, and changed later (H17)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import duckdb

from shared.contracts.layout import TableLayout
from tests.world.duck import name
from tests.world.lake import Lake, opened

OWNER = "owner"
"""The author of commits of whoever owns a destination's lake: the oracle lets it lay out files, and nothing else."""

PLAIN = ("RESET PARTITIONED BY", "RESET SORTED BY")


def layouts(moment: str | None, texts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """What may follow ``ALTER TABLE t``, by columns that folders can be named after; ``moment`` is a timestamp."""
    columns = [name(column) for column in (*texts, *others)]
    buckets = [f"SET PARTITIONED BY (bucket({count}, {column}))" for column in columns for count in (2, 5)]
    identities = [f"SET PARTITIONED BY ({column})" for column in columns]
    mixed = [f"SET PARTITIONED BY ({columns[0]}, bucket(3, {columns[-1]}))"] if len(columns) > 1 else []
    ordered = [f"SET SORTED BY ({', '.join(reversed(columns))})", f"SET SORTED BY ({columns[0]} DESC)"]
    year, month = (f"{unit}({name(moment)})" for unit in ("year", "month")) if moment else ("", "")
    times = [f"SET PARTITIONED BY ({unit})" for unit in (f"{year}, {month}", year, month)] if moment else []
    return (*buckets, *identities, *mixed, *ordered, *times, *PLAIN)


def declared_layout(rng: Random, known: Sequence[str], *, encrypted: bool) -> TableLayout:
    """A layout for the configuration of a destination: one of those ``known`` that need no buckets, or the source's."""
    texts = {"SET PARTITIONED BY": "", "SET SORTED BY": ""}
    for start in texts:
        fitting = [each for each in known if each.startswith(start) and "bucket" not in each]
        if fitting and rng.random() < 0.7:
            texts[start] = rng.choice(fitting).removeprefix(f"{start} (").removesuffix(")")
    return TableLayout(
        partitioned_by=texts["SET PARTITIONED BY"], sorted_by=texts["SET SORTED BY"], encrypted=encrypted
    )


def lay_out(con: duckdb.DuckDBPyConnection, lake: Lake, schema: str, table: str, layout: str) -> None:
    """Change the layout of a destination's table as its owner would."""
    with opened(con, lake, read_only=False) as alias:
        con.execute("BEGIN")
        con.execute(f"ALTER TABLE {name(alias, schema, table)} {layout}")
        con.execute(f"CALL {name(alias)}.set_commit_message('{OWNER}', 'another layout')")
        con.execute("COMMIT")
