"""A destination written by hand: as the interface promises it, or with a fault that the oracle has to find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from tests.world.destination import Destination
from tests.world.duck import name, quote
from tests.world.lake import attach, detach
from tests.world.rows import Column
from tests.world.statements import sql_rows
from tests.world.truth import Truth

ALIAS = "forged"


class Forge:
    """Writes snapshots into one destination's lake, each right unless told otherwise."""

    def __init__(self, con: duckdb.DuckDBPyConnection, destination: Destination, truth: Truth) -> None:
        self.con, self.destination, self.truth = con, destination, truth
        self.table = name(ALIAS, destination.schema, destination.table)
        self.cursor = name(ALIAS, "_viaduck", f"cursor_{destination.id}")
        self.held = 0
        self.tokens = 0

    def open(self) -> None:
        attach(self.con, ALIAS, self.destination.lake, create=True)

    def close(self) -> None:
        detach(self.con, ALIAS)

    def seed(self, through: int, columns: Sequence[Column] | None = None, **faults: Any) -> None:
        declared = ", ".join(f"{name(c.name)} {c.type}" for c in columns or self.truth.columns(through))
        mine = f"{quote(self.destination.pipeline)}, {quote(self.destination.id)}"
        made = [
            f"CREATE SCHEMA IF NOT EXISTS {name(ALIAS, self.destination.schema)}",
            f"CREATE SCHEMA IF NOT EXISTS {name(ALIAS, '_viaduck')}",
            f"CREATE TABLE {self.table} ({declared})",
            f"CREATE TABLE {self.cursor} (pipeline VARCHAR, destination VARCHAR, generation BIGINT, position BIGINT)",
            f"INSERT INTO {self.cursor} VALUES ({mine}, 0, -1)",
        ]
        self.commit("seed", -1, through, before=made, **faults)

    def commit(
        self,
        kind: str,
        after: int,
        through: int,
        *,
        generation: int = 1,
        before: Sequence[str] = (),
        tamper: Sequence[str] = (),
        stamp: Mapping[str, Any] | None = None,
        position: int | None = None,
        author: str = "viaduck",
    ) -> None:
        """Commit once. ``tamper`` runs after the rows are right; ``stamp`` and ``position`` replace what is true."""
        moved = through if position is None else position
        says = self._says(kind, after, through, generation) | dict(stamp or {})
        statements = [
            *before,
            f"UPDATE {self.cursor} SET generation = {generation}, position = {moved}",
            *(self._replace(through) if kind in ("seed", "changes") else []),
            *tamper,
            f"CALL {name(ALIAS)}.set_commit_message({quote(author)}, {quote(f'{kind} of {after}')},"
            f" extra_info => {quote(json.dumps(says))})",
        ]
        self.transact(*statements)

    def transact(self, *statements: str) -> None:
        self.con.execute("BEGIN")
        try:
            for statement in statements:
                self.con.execute(statement).fetchall()
        except duckdb.Error:
            self.con.execute("ROLLBACK")
            raise
        self.con.execute("COMMIT")

    def _replace(self, through: int) -> list[str]:
        rows = [row for row, times in self._rows(through).items() for _ in range(times)]
        return [f"DELETE FROM {self.table}"] + ([f"INSERT INTO {self.table} VALUES {sql_rows(rows)}"] if rows else [])

    def _rows(self, through: int) -> Mapping[Any, int]:
        return self.truth.slice(through, self.destination.value)

    def _says(self, kind: str, after: int, through: int, generation: int) -> dict[str, Any]:
        writes = kind in ("seed", "changes")
        deleted, inserted = (self.held, sum(self._rows(through).values())) if writes else (0, 0)
        self.held += inserted - deleted
        self.tokens += 1
        return {
            "viaduck": 1, "pipeline": self.destination.pipeline, "destination": self.destination.id, "kind": kind,
            "generation": generation, "after": after, "through": through, "item": f"i{self.tokens}",
            "token": f"{self.destination.id}-{self.tokens}", "deleted": deleted, "inserted": inserted,
        }  # fmt: skip
