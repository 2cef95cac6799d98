"""The limit: the same work in one process, serially, with DuckDB alone. No Spark, no Kafka, no retries, nobody to stop.

It keeps the same promise as Viaduck while nothing fails: touched keys from the feed, their state at the head, and one
transaction per destination that moves the cursor first, deletes, inserts and carries a stamp.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb

from shared.lake.sql import ident, literal, path

CURSOR = ("_viaduck", "cursor")


@dataclass(frozen=True)
class SourceTable:
    """A source table attached to the script's connection."""

    alias: str
    schema: str
    table: str
    routing_field: str
    key_column: str

    @property
    def path(self) -> str:
        return path(self.alias, self.schema, self.table)

    def feed(self, function: str, first: int, last: int) -> str:
        arguments = ", ".join(map(literal, (self.alias, self.schema, self.table)))
        columns = f"{ident(self.routing_field)} AS tenant, {ident(self.key_column)} AS id"
        return f"SELECT {columns} FROM {function}({arguments}, {first}, {last})"


@dataclass
class SingleProcess:
    """``destinations`` maps each tenant to the alias of its attached lake."""

    con: duckdb.DuckDBPyConnection
    source: SourceTable
    destinations: Mapping[str, str]
    position: int = -1
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of the last call by phase: feed, state, apply."""

    def seed(self, through: int) -> None:
        """Create every destination from one scan of the source at ``through``."""
        self.seconds = {}
        with self._phase("state"):
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE state AS SELECT * FROM {self._at(through)}")
        with self._phase("apply"):
            for tenant in self.destinations:
                self._create(tenant, through)
        self.position = through

    def apply_changes(self, through: int) -> int:
        """Bring every destination that the range touches to ``through``; returns the number of touched keys."""
        self.seconds = {}
        with self._phase("feed"):
            touched = self._read_touched(through)
        with self._phase("state"):
            self._read_state(through)
        with self._phase("apply"):
            for tenant in touched:
                self._apply(tenant, through)
        self.position = through
        return sum(touched.values())

    def unequal(self) -> list[str]:
        """Tenants whose table is not their slice of the source at the position."""
        return [tenant for tenant in self.destinations if self._difference(tenant)]

    def _difference(self, tenant: str) -> int:
        here = f"SELECT * FROM {path(self.destinations[tenant], self.source.schema, self.source.table)}"
        there = f"SELECT * FROM {self._at(self.position)} WHERE {ident(self.source.routing_field)} = {literal(tenant)}"
        both_ways = f"(({here}) EXCEPT ALL ({there})) UNION ALL (({there}) EXCEPT ALL ({here}))"
        return int(self.con.execute(f"SELECT count(*) FROM ({both_ways})").fetchall()[0][0])

    def _read_touched(self, through: int) -> dict[str, int]:
        """The touched keys into a temporary table; returns how many of them each tenant has."""
        feeds = [
            self.source.feed(function, self.position + 1, through)
            for function in ("ducklake_table_insertions", "ducklake_table_deletions")
        ]
        self.con.execute("BEGIN")
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE touched AS {' UNION '.join(feeds)}")
        counted = self.con.execute("SELECT tenant, count(*) FROM touched GROUP BY tenant").fetchall()
        return {tenant: rows for tenant, rows in counted if tenant in self.destinations}

    def _read_state(self, through: int) -> None:
        key = ident(self.source.key_column)
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE state AS SELECT s.* FROM {self._at(through, 's')}"
            f" WHERE s.{key} IN (SELECT id FROM touched)"
        )
        self.con.execute("COMMIT")

    def _apply(self, tenant: str, through: int) -> None:
        alias = self.destinations[tenant]
        table = path(alias, self.source.schema, self.source.table)
        self.con.execute("BEGIN")
        # One opaque expression instead of two comparisons: DuckLake then fetches no file statistics to prune with.
        here = f"generation || '/' || position = '1/{self.position}'"
        moved = self.con.execute(f"UPDATE {path(alias, *CURSOR)} SET position = {through} WHERE {here}").fetchall()[0][
            0
        ]
        assert moved == 1, f"{tenant}: the cursor is not at {self.position}"
        self.con.execute(
            f"DELETE FROM {table} WHERE {ident(self.source.key_column)} IN"
            f" (SELECT id FROM touched WHERE tenant = {literal(tenant)})"
        )
        self._insert(tenant, table)
        self._commit(alias, tenant, through)

    def _create(self, tenant: str, through: int) -> None:
        alias = self.destinations[tenant]
        table = path(alias, self.source.schema, self.source.table)
        self.con.execute("BEGIN")
        self.con.execute(f"CREATE SCHEMA {path(alias, CURSOR[0])}")
        self.con.execute(f"CREATE TABLE {path(alias, *CURSOR)} (generation BIGINT, position BIGINT)")
        self.con.execute(f"INSERT INTO {path(alias, *CURSOR)} VALUES (1, {through})")
        self.con.execute(f"CREATE TABLE {table} AS SELECT * FROM state WHERE false")
        self._insert(tenant, table)
        self._commit(alias, tenant, through)
        where = f"schema => {literal(self.source.schema)}, table_name => {literal(self.source.table)}"
        self.con.execute(f"CALL {ident(alias)}.set_option('data_inlining_row_limit', 0, {where})")
        self._spare_lookups(alias)

    def _spare_lookups(self, alias: str) -> None:
        """As Viaduck does (``services/applier/apply/destination/table_options.py``).

        DuckLake looks for these tables in every transaction.
        """
        metadata = f"__ducklake_metadata_{alias}"
        kind = self.con.execute("SELECT type FROM duckdb_databases() WHERE database_name = ?", [metadata]).fetchall()
        if kind != [("postgres",)]:
            return
        for (table_id,) in self.con.execute(f"SELECT table_id FROM ducklake_table_info({literal(alias)})").fetchall():
            made = (
                f"CREATE TABLE IF NOT EXISTS public.ducklake_inlined_delete_{table_id}"
                " (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)"
            )
            self.con.execute(f"CALL postgres_execute({literal(metadata)}, {literal(made)})").fetchall()

    def _insert(self, tenant: str, table: str) -> None:
        routing = ident(self.source.routing_field)
        self.con.execute(f"INSERT INTO {table} SELECT * FROM state WHERE {routing} = {literal(tenant)}")

    def _commit(self, alias: str, tenant: str, through: int) -> None:
        stamp = json.dumps({"destination": tenant, "after": self.position, "through": through})
        call = f"set_commit_message('single-process', 'bench', extra_info => {literal(stamp)})"
        self.con.execute(f"CALL {ident(alias)}.{call}")
        self.con.execute("COMMIT")

    def _at(self, through: int, name: str = "s") -> str:
        return f"{self.source.path} {name} AT (VERSION => {through})"

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun
