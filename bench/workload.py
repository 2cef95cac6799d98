"""What the benchmarks write into the source: rows of many tenants, a dense burst of changes, a small commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb

SOURCE, SCHEMA, TABLE = "source", "main", "events"
ROUTING_FIELD, KEY_COLUMN = "tenant", "id"
COLUMNS = "id, tenant, amount, note, happened_at"
DECLARED = "id BIGINT, tenant VARCHAR, amount DECIMAL(12,2), note VARCHAR, happened_at TIMESTAMP"


@dataclass(frozen=True)
class Workload:
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


DENSE = Workload("dense", 20, 200_000, 10, 60_000, 30_000, 10_000, 20)
SMALL = Workload("small", 100, 10_000, 1, 12, 6, 2, 3)
MANY = Workload("many", 200, 20_000, 1, 2_000, 1_000, 500, 200)
SPARSE = Workload("sparse", 1_000, 10_000, 1, 40, 40, 20, 10)


def of_tenants(workload: Workload, tenants: int) -> Workload:
    """The same for fewer tenants, or more: as many rows and changes for each."""
    if workload.touched_tenants < workload.tenants:
        return replace(workload, tenants=tenants, seeded=workload.seeded * tenants // workload.tenants)
    sizes = {name: getattr(workload, name) * tenants // workload.tenants
             for name in ("seeded", "inserts", "updates", "deletes")}  # fmt: skip
    return replace(workload, tenants=tenants, touched_tenants=tenants, **sizes)


def tenant_names(workload: Workload) -> list[str]:
    return [f"tenant{number:03d}" for number in range(workload.tenants)]


class Columns:
    """Other columns beside those that are written: each time the one that came last is renamed, and one is added."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str) -> None:
        self._con = con
        self._table = f"{alias}.{SCHEMA}.{TABLE}"
        self._added = 0

    def add(self) -> None:
        self._con.execute(f"ALTER TABLE {self._table} ADD COLUMN extra_{self._added} INTEGER DEFAULT 5")
        self._added += 1

    def change(self) -> None:
        """Two commits. One must have been added before."""
        last = self._added - 1
        self._con.execute(f"ALTER TABLE {self._table} RENAME COLUMN extra_{last} TO renamed_{last}")
        self.add()


class SourceWriter:
    """Writes a workload into the table ``alias``.main.events of a lake attached to ``con``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str, workload: Workload) -> None:
        self._con = con
        self._table = f"{alias}.{SCHEMA}.{TABLE}"
        self._workload = workload
        self._next_id = workload.seeded
        self._runs = 0

    def seed(self) -> None:
        self._con.execute(f"CREATE TABLE {self._table} ({DECLARED})")
        new = self._new_rows(0, self._workload.seeded, self._workload.tenants)
        self._con.execute(f"INSERT INTO {self._table} ({COLUMNS}) {new}")

    def take(self, workload: Workload) -> None:
        """Go on with another one, of as many tenants."""
        self._workload = workload

    def run(self) -> None:
        """One run's changes, spread evenly over its commits; each commit is a transaction of up to three statements."""
        if self._workload.updates or self._workload.deletes:
            self._pick_victims()
        for number in range(self._workload.commits):
            self._transaction(number)
        self._runs += 1

    def _new_rows(self, first: int, count: int, tenants: int) -> str:
        return (
            f"SELECT i, printf('tenant%03d', i % {tenants}), (i % 100000) / 100, 'a note about row ' || i,"
            f" TIMESTAMP '2026-01-01' + to_seconds(i) FROM range({first}, {first + count}) r(i)"
        )

    def _pick_victims(self) -> None:
        """Live rows to update and delete, each at most once in a run, spread over all files."""
        wanted = self._workload.updates + self._workload.deletes
        few = f"tenant IN (SELECT printf('tenant%03d', i) FROM range({self._workload.touched_tenants}) r(i))"
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE victims AS SELECT id, row_number() OVER () - 1 AS n FROM (SELECT id FROM"
            f" {self._table} WHERE {few} ORDER BY hash(id + {self._runs} * 1000003) LIMIT {wanted})"
        )

    def _transaction(self, number: int) -> None:
        whole = self._workload
        inserts, updates, deletes = (part // whole.commits for part in (whole.inserts, whole.updates, whole.deletes))
        first = number * (updates + deletes)
        self._con.execute("BEGIN")
        self._con.execute(f"INSERT INTO {self._table} ({COLUMNS}) {self._new_rows_of_run(inserts)}")
        if updates:
            changed = self._victims(first, first + updates)
            self._con.execute(f"UPDATE {self._table} SET amount = amount + 1, note = note || '!' WHERE {changed}")
        if deletes:
            self._con.execute(
                f"DELETE FROM {self._table} WHERE {self._victims(first + updates, first + updates + deletes)}"
            )
        self._con.execute("COMMIT")
        self._next_id += inserts

    @staticmethod
    def _victims(first: int, end: int) -> str:
        return f"id IN (SELECT id FROM victims WHERE n >= {first} AND n < {end})"

    def _new_rows_of_run(self, count: int) -> str:
        return self._new_rows(self._next_id, count, self._workload.touched_tenants)


def committed(con: duckdb.DuckDBPyConnection, alias: str) -> int:
    """The lake's head snapshot as this connection sees it."""
    return int(con.execute(f"SELECT id FROM {alias}.current_snapshot()").fetchall()[0][0])
