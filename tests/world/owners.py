"""What the owner of a destination makes of its table's columns: some of it keeps every value, some loses a column's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

import duckdb

from tests.world.duck import name
from tests.world.lake import Lake, opened

AUTHOR = "owner of columns"
"""The author of such commits."""

OWN = "owner's own"
"""A column that is there between two of them."""


class Act(StrEnum):
    """The message of a commit: what it is a part of."""

    RENAMED_AND_BACK = "renamed and back"
    ADDED_AND_DROPPED = "added and dropped"
    LAST_DROPPED = "last dropped"
    DROPPED_AND_ADDED = "dropped and added"

    @property
    def loses(self) -> bool:
        """Whether rows show less than they did."""
        return self in (Act.LAST_DROPPED, Act.DROPPED_AND_ADDED)


@dataclass
class Owner:
    """Draws for itself, so that a life is else the one of its seed. ``done`` is what it did how often."""

    rng: Random
    rate: float = 0.5
    done: Counter[Act] = field(default_factory=Counter)

    @property
    def wants(self) -> bool:
        return self.rng.random() < self.rate

    def alter(self, con: duckdb.DuckDBPyConnection, lake: Lake, schema: str, table: str) -> Act | None:
        """Alter the table; what was done to it, None where it is not there."""
        with opened(con, lake, read_only=False) as alias:
            there = name(alias, schema, table)
            try:
                columns = [(row[0], row[1]) for row in con.execute(f"DESCRIBE {there}").fetchall()]
            except duckdb.CatalogException:
                return None
            act = self.rng.choice([each for each in Act if len(columns) > 1 or not each.loses])
            for statement in self._statements(act, there, columns):
                con.execute("BEGIN")
                con.execute(statement)
                con.execute(f"CALL {name(alias)}.set_commit_message('{AUTHOR}', '{act}')")
                con.execute("COMMIT")
        self.done[act] += 1
        return act

    def _statements(self, act: Act, there: str, columns: Sequence[tuple[str, str]]) -> list[str]:
        column, its_type = columns[-1] if act is Act.LAST_DROPPED else self.rng.choice(columns)
        added, dropped = f"ALTER TABLE {there} ADD COLUMN", f"ALTER TABLE {there} DROP COLUMN"
        match act:
            case Act.LAST_DROPPED:
                return [f"{dropped} {name(column)}"]
            case Act.DROPPED_AND_ADDED:
                return [f"{dropped} {name(column)}", f"{added} {name(column)} {its_type}"]
            case Act.ADDED_AND_DROPPED:
                return [f"{added} {name(OWN)} {its_type}", f"{dropped} {name(OWN)}"]
            case Act.RENAMED_AND_BACK:
                renamed = f"ALTER TABLE {there} RENAME COLUMN"
                return [f"{renamed} {name(column)} TO {name(OWN)}", f"{renamed} {name(OWN)} TO {name(column)}"]
