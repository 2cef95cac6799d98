"""What the benchmarks write into the source: rows of many tenants, a dense burst of changes, a small commit."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

SCHEMA, TABLE = "main", "events"
ROUTING_FIELD, KEY_COLUMN = "tenant", "id"
DECLARED = "id BIGINT, tenant VARCHAR, amount DECIMAL(12,2), note VARCHAR, happened_at TIMESTAMP"


@dataclass(frozen=True)
class Case:
    """A size: how many tenants, how much is there before, what one run changes."""

    name: str
    tenants: int
    seeded: int
    commits: int
    inserts: int
    updates: int
    deletes: int
    touched_tenants: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes


DENSE = Case("dense", 20, 200_000, 10, 60_000, 30_000, 10_000, 20)
SMALL = Case("small", 100, 10_000, 1, 12, 6, 2, 3)
MANY = Case("many", 200, 20_000, 1, 2_000, 1_000, 500, 200)
SPARSE = Case("sparse", 1_000, 10_000, 1, 40, 40, 20, 10)


def tenant_names(case: Case) -> list[str]:
    return [f"tenant{number:03d}" for number in range(case.tenants)]


class SourceWriter:
    """Writes a case into the table ``alias``.main.events of a lake attached to ``con``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str, case: Case) -> None:
        self._con = con
        self._table = f"{alias}.{SCHEMA}.{TABLE}"
        self._case = case
        self._next_id = case.seeded
        self._runs = 0

    def seed(self) -> None:
        self._con.execute(f"CREATE TABLE {self._table} ({DECLARED})")
        self._con.execute(f"INSERT INTO {self._table} {self._new_rows(0, self._case.seeded, self._case.tenants)}")

    def run(self) -> None:
        """One run's changes, spread evenly over its commits; each commit is a transaction of three statements."""
        self._pick_victims()
        for number in range(self._case.commits):
            self._transaction(number)
        self._runs += 1

    def _new_rows(self, first: int, count: int, tenants: int) -> str:
        return (
            f"SELECT i, printf('tenant%03d', i % {tenants}), (i % 100000) / 100, 'a note about row ' || i,"
            f" TIMESTAMP '2026-01-01' + to_seconds(i) FROM range({first}, {first + count}) r(i)"
        )

    def _pick_victims(self) -> None:
        """Live rows to update and delete, each at most once in a run, spread over all files."""
        wanted = self._case.updates + self._case.deletes
        few = f"tenant IN (SELECT printf('tenant%03d', i) FROM range({self._case.touched_tenants}) r(i))"
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE victims AS SELECT id, row_number() OVER () - 1 AS n FROM (SELECT id FROM"
            f" {self._table} WHERE {few} ORDER BY hash(id + {self._runs} * 1000003) LIMIT {wanted})"
        )

    def _transaction(self, number: int) -> None:
        inserts, updates, deletes = (
            part // self._case.commits for part in (self._case.inserts, self._case.updates, self._case.deletes)
        )
        first = number * (updates + deletes)
        self._con.execute("BEGIN")
        self._con.execute(f"INSERT INTO {self._table} {self._new_rows_of_run(inserts)}")
        self._con.execute(
            f"UPDATE {self._table} SET amount = amount + 1, note = note || '!' WHERE id IN"
            f" (SELECT id FROM victims WHERE n >= {first} AND n < {first + updates})"
        )
        self._con.execute(
            f"DELETE FROM {self._table} WHERE id IN"
            f" (SELECT id FROM victims WHERE n >= {first + updates} AND n < {first + updates + deletes})"
        )
        self._con.execute("COMMIT")
        self._next_id += inserts

    def _new_rows_of_run(self, count: int) -> str:
        return self._new_rows(self._next_id, count, self._case.touched_tenants)


def committed(con: duckdb.DuckDBPyConnection, alias: str) -> int:
    """The lake's head snapshot as this connection sees it."""
    return int(con.execute(f"SELECT id FROM {alias}.current_snapshot()").fetchall()[0][0])
