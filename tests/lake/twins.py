"""Lakes of one tenant that are brought through one history: by direct commits, by DuckLake's extension, by either."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

from services.applier.model.task import SourceTable, Task
from services.applier.worker.task_run import run_task
from shared.config.model import CommitChoice
from shared.contracts.messages import ItemKind, Outcome, Progress
from tests.lake.rig import ApplyRig

COLUMNS = {
    "id": "BIGINT",
    "tenant": "VARCHAR",
    "i": "INTEGER",
    "f": "DOUBLE",
    "s": "VARCHAR",
    "n": "DECIMAL(18, 4)",
    "ts": "TIMESTAMP",
    "tz": "TIMESTAMPTZ",
    "dt": "DATE",
    "ti": "TIME",
    "b": "BOOLEAN",
    "bl": "BLOB",
    "u": "UUID",
    "li": "INTEGER[]",
    "st": "STRUCT(a INTEGER, b VARCHAR[])",
    "m": "MAP(VARCHAR, BIGINT)",
    "j": "JSON",
    "iv": "INTERVAL",
}

VALUES = {
    "i": ["NULL", "0", "-2147483648", "2147483647", "17"],
    "f": ["NULL", "0.0", "-1e308", "'nan'::DOUBLE", "'inf'::DOUBLE", "3.25"],
    "s": ["NULL", "''", "'ä{}'", "'quo''te'", "'a' || chr(0) || 'b'", "repeat('z', 400)", "'$$--;'"],
    "n": ["NULL", "0", "-99999999999999.9999", "12.5"],
    "ts": ["NULL", "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '2024-02-29'", "'infinity'::TIMESTAMP"],
    "tz": ["NULL", "TIMESTAMPTZ '2024-01-01 12:00:00+02'", "TIMESTAMPTZ '9999-12-31 00:00:00+00'"],
    "dt": ["NULL", "DATE '2024-01-01'", "DATE '0001-01-01'", "DATE '12024-01-01'"],
    "ti": ["NULL", "TIME '00:00:00'", "TIME '23:59:59.999999'"],
    "b": ["NULL", "true", "false"],
    "bl": ["NULL", "''::BLOB", "'\\x00\\xFF'::BLOB"],
    "u": ["NULL", "'00000000-0000-0000-0000-000000000001'::UUID", "'ffffffff-ffff-ffff-ffff-ffffffffffff'::UUID"],
    "li": ["NULL", "[]", "[1, NULL, 3]"],
    "st": ["NULL", "{'a': 1, 'b': ['x', NULL]}", "{'a': NULL, 'b': NULL}"],
    "m": ["NULL", "MAP {'k': 1}", "MAP {}"],
    "j": ["NULL", "'{\"a\": [1, 2]}'", "'null'"],
    "iv": ["NULL", "INTERVAL 3 DAY", "INTERVAL 0 SECOND"],
}

NESTED = frozenset({"li", "st", "m", "j"})

EXPIRE = "CALL ducklake_expire_snapshots('dst', older_than => now())"
"""All but the newest snapshot."""

CLEAN_UP = "CALL ducklake_cleanup_old_files('dst', cleanup_all => true)"

MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('dst')",
    "CALL ducklake_merge_adjacent_files('dst')",
    "CALL ducklake_rewrite_data_files('dst', 't', delete_threshold => 0.01)",
    EXPIRE,
    CLEAN_UP,
)

TESTS = [
    f"{name} = CAST({value} AS {COLUMNS[name]})"
    for name, values in VALUES.items()
    for value in values
    if name not in (*NESTED, "bl") and value != "NULL" and "chr(0)" not in value
]
"""Comparisons with values that a reader can ask for (H16); a scan of Parquet files misses BLOBs (H25)."""

TWINS = ("direct", "extension", "mixed")
"""One follows directly wherever it may, one never does, and one as it happens to be drawn for each commit."""


class Twins:
    """Lakes of one tenant that are brought through one history in three ways."""

    def __init__(self, rig: ApplyRig, rng: random.Random) -> None:
        self.rig = rig
        self.rng = rng
        self.next_id = 0
        self.positions = dict.fromkeys(TWINS, -1)
        self.paths = Counter[str]()
        self.reasons = Counter[str | None]()
        declared = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        rig.sql(f"CREATE TABLE src.main.t ({declared})")
        for name in TWINS:
            rig.add(name, "a")
            rig.write(name)  # a lake that is there already: a SQLite catalog is the extension's to make

    def insert(self, count: int) -> str:
        rows = []
        for _ in range(count):
            drawn = ", ".join(self.rng.choice(VALUES[name]) for name in VALUES)
            rows.append(f"({self.next_id}, '{self.rng.choice('aaab')}', {drawn})")
            self.next_id += 1
        return f"INSERT INTO src.main.t VALUES {', '.join(rows)}"

    def change(self) -> list[str]:
        lost, kept = self.rng.randrange(2, 9), self.rng.randrange(9)
        some = f"id % {lost} = {min(kept, lost - 1)}"
        column = self.rng.choice(list(VALUES))
        value = f"CAST({self.rng.choice(VALUES[column])} AS {COLUMNS[column]})"
        drawn = [
            [self.insert(self.rng.randrange(1, 30))],
            [f"DELETE FROM src.main.t WHERE {some}"],
            [f"UPDATE src.main.t SET {column} = {value} WHERE {some}"],
            [f"UPDATE src.main.t SET tenant = CASE tenant WHEN 'a' THEN 'b' ELSE 'a' END WHERE {some}"],
            [f"DELETE FROM src.main.t WHERE {some}", self.insert(self.rng.randrange(1, 5))],
        ]
        return self.rng.choice(drawn)

    def follow(self, kind: ItemKind = ItemKind.CHANGES, **item: Any) -> list[Progress]:
        """Bring every twin to the head in its way; the mixed one is told at each step by whom."""
        done = []
        for name in TWINS:
            ways: dict[str, CommitChoice] = {"direct": "auto", "extension": "extension"}
            commit = ways[name] if name in ways else self.rng.choice(list(ways.values()))
            if self.positions[name] == self.rig.head:
                continue
            if kind is not ItemKind.SEED:
                after = self.rig.head if kind is ItemKind.ADVANCE else self.positions[name]
                item = {"expected": self.positions[name], "after": after}
            target = self.rig.target(name, kind, **item)
            source = SourceTable(self.rig.source, "main", "t", self.rig.routing)
            (result,) = run_task(Task(kind, source, (target,), replace(self.rig.limits, commit=commit))).results
            done.append(result.progress)
            assert result.progress.outcome in (Outcome.APPLIED, Outcome.EMPTY), result.progress.error
            if result.progress.outcome is Outcome.APPLIED:
                self.positions[name] = result.progress.position or 0
                self.paths[f"{name}: {result.progress.commit}"] += 1
                self.reasons[result.progress.commit_reason] += 1
        return done

    def rewind(self, to: int) -> None:
        """Begin another life of every twin at an earlier snapshot of the source."""
        for name in TWINS:
            self.rig.add(name, generation=2, seed_at=to)
            self.positions[name] = -1
        self.follow(ItemKind.SEED, through=to, pinned=True)

    def found(self) -> list[int]:
        """How many rows of the tenant each of ``TESTS`` is true for at the source."""
        counted = ", ".join(f"count(*) FILTER ({test})" for test in TESTS)
        return list(self.rig.con.execute(f"SELECT {counted} FROM src.main.t WHERE tenant = 'a'").fetchall()[0])

    def maintain(self, *statements: str) -> None:
        for name in TWINS:
            self.rig.write(name, *statements)

    def expire(self) -> None:
        """Expire the same snapshots of every twin: those before a drawn one, and in between maybe another. The files
        that only they had are cleaned up."""
        seen = {name: self._snapshots(name) for name in TWINS}
        known = sorted(set.intersection(*(set(stamped) for stamped, _ in seen.values())))
        first = self.rng.randrange(1, len(known) - 1)
        hole = known[self.rng.randrange(first + 1, len(known))]
        for name, (stamped, retained) in seen.items():
            gone = [each for each in retained if each < stamped[known[first]]]
            gone += [stamped[hole]] if hole != known[-1] else []
            self.rig.write(name, f"CALL ducklake_expire_snapshots('dst', versions => {gone})", CLEAN_UP)
            assert not set(gone) & set(self._snapshots(name)[1])

    def _snapshots(self, name: str) -> tuple[dict[int, int], list[int]]:
        """Those that stand for a position, by it, and all."""
        found = self.rig.look(name, "SELECT snapshot_id, author, commit_extra_info FROM dst.snapshots() ORDER BY 1")
        return (
            {json.loads(said)["through"]: snapshot for snapshot, author, said in found if author == "viaduck"},
            [snapshot for snapshot, _, _ in found],
        )
