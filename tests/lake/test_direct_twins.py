"""A lake that Viaduck commits to directly equals its twin that DuckLake's extension commits to, and the extension
says so: in fresh instances, at the head, at each snapshot, in the change feed, by filters, and after maintenance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import duckdb
import pytest

from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker.task_run import run_task
from shared.config.model import CommitChoice
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from tests.lake.conftest import MakeRig
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

MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('dst')",
    "CALL ducklake_merge_adjacent_files('dst')",
    "CALL ducklake_rewrite_data_files('dst', 't', delete_threshold => 0.01)",
    "CALL ducklake_expire_snapshots('dst', older_than => now() - INTERVAL 100 YEAR)",
    "CALL ducklake_cleanup_old_files('dst', cleanup_all => true)",
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

    def maintain(self, statement: str) -> None:
        for name in TWINS:
            self.rig.write(name, statement)


@pytest.fixture
def twins(make_rig: MakeRig, request: pytest.FixtureRequest) -> Twins:
    return Twins(make_rig(limits=Limits(threads=1, most_threads=1)), random.Random(request.node.name))


class Lake:
    """A twin as DuckLake's extension shows it, in an instance of its own."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def bag(self, query: str) -> list[str]:
        """Rows as texts, among which NaN equals itself."""
        return sorted(map(repr, self._con.execute(query).fetchall()))

    def stamped(self) -> dict[int, int]:
        """Snapshots by the position that they stand for."""
        found = self._con.execute(
            "SELECT json_extract(commit_extra_info, '$.through')::BIGINT, max(snapshot_id) FROM dst.snapshots()"
            " WHERE author = 'viaduck' AND json_extract_string(commit_extra_info, '$.kind') <> 'maintenance' GROUP BY 1"
        ).fetchall()
        return {int(position): int(snapshot) for position, snapshot in found}

    def rows_at(self, snapshot: int) -> list[str]:
        return self.bag(f"SELECT * FROM dst.main.t AT (VERSION => {snapshot})")

    def feed(self, first: int, last: int) -> Counter[str]:
        """What the change feed tells after ``first`` up to ``last``; snapshots have other numbers in each twin."""
        shown = f"SELECT * EXCLUDE (snapshot_id, rowid) FROM dst.table_changes('t', {first + 1}, {last})"
        return Counter(self.bag(f"SELECT change_type, id, md5(to_json(t)) FROM ({shown}) t"))

    def filtered(self) -> list[str]:
        """How many rows filters on each column find, of the least value up, of the greatest down, and of none."""
        parts = []
        for column in ("id", *VALUES):
            parts.append(f"count(*) FILTER ({column} IS NULL)")
            if column not in NESTED:
                asked = f"FROM dst.main.t WHERE NOT contains(CAST({column} AS VARCHAR), chr(0))"  # H16
                parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} <= (SELECT max({column}) {asked}))")
                parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} >= (SELECT min({column}) {asked}))")
            parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} IS NULL)")
        return self.bag(f"SELECT {', '.join(parts)} FROM dst.main.t")

    def found_by_stock(self) -> list[int]:
        """How many rows each value finds, by a reader that believes statistics (H1)."""
        self._con.execute("RESET disabled_optimizers")
        return [self._con.execute(f"SELECT count(*) FROM dst.main.t WHERE {test}").fetchall()[0][0] for test in TESTS]

    def cursors(self) -> int:
        ((name,),) = self._con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_viaduck'"
        ).fetchall()
        return len(self.bag(f"SELECT * FROM dst._viaduck.{name}"))


def require_equal(twins: Twins, *, history: bool = True) -> None:
    """Heads equal the slice; stamped snapshots, the feed between them and filtered reads equal the extension's twin."""
    wanted = [repr(row) for row in twins.rig.expected_of("a")]
    with ExitStack() as opened:
        lakes = {name: Lake(opened.enter_context(twins.rig.opened(name))) for name in TWINS}
        theirs = lakes["extension"]
        for name, ours in lakes.items():
            assert ours.bag("SELECT * FROM dst.main.t") == wanted, name
            assert ours.cursors() == 1, name
            assert ours.filtered() == theirs.filtered(), name
            if name == "direct":  # the extension itself narrows statistics (H24)
                assert ours.found_by_stock() == twins.found(), name
            if history:
                require_same_history(name, ours, theirs)


def require_same_history(name: str, ours: Lake, theirs: Lake) -> None:
    mine, others = ours.stamped(), theirs.stamped()
    assert mine.keys() == others.keys(), name
    for position, snapshot in mine.items():
        assert ours.rows_at(snapshot) == theirs.rows_at(others[position]), (name, position)
    for first, last in pairwise(sorted(mine, key=mine.__getitem__)):
        told, said = ours.feed(mine[first], mine[last]), theirs.feed(others[first], others[last])
        assert (told - said, said - told) == (Counter(), Counter()), (name, first, last)


def orphans(rig: ApplyRig, name: str) -> Sequence[tuple[Any, ...]]:
    return rig.look_writing(name, "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)")


def test_twins_are_equal_through_changes_of_every_type(twins: Twins) -> None:
    twins.rig.sql(twins.insert(60))
    assert [each.commit for each in twins.follow(ItemKind.SEED)][:2] == [CommitPath.DIRECT, CommitPath.EXTENSION]
    for _ in range(8):
        twins.rig.sql(*twins.change())
        twins.follow()
    require_equal(twins)
    assert twins.paths["direct: direct"] >= 4
    assert twins.paths["extension: direct"] == 0
    assert orphans(twins.rig, "direct") == []


def test_twins_are_equal_under_an_owners_maintenance(twins: Twins) -> None:
    twins.rig.sql(twins.insert(40))
    twins.follow(ItemKind.SEED)
    for number in range(10):
        twins.rig.sql(*twins.change())
        twins.follow()
        if number % 2:
            twins.maintain(twins.rng.choice(MAINTENANCE))
            require_equal(twins, history=False)
    for statement in MAINTENANCE:
        twins.maintain(statement)
        require_equal(twins, history=False)
    twins.rig.sql(*twins.change())
    twins.follow()
    require_equal(twins, history=False)
    assert orphans(twins.rig, "direct") == []


def test_twins_are_equal_after_they_were_rewound(twins: Twins) -> None:
    twins.rig.sql(twins.insert(40))
    twins.follow(ItemKind.SEED)
    twins.rig.sql(*twins.change())
    twins.follow()
    then = twins.rig.head
    twins.rig.sql(*twins.change(), twins.insert(5))
    twins.follow()
    twins.paths.clear()
    twins.rewind(then)
    assert (twins.paths["direct: direct"], twins.paths["extension: extension"]) == (1, 1), twins.reasons
    twins.follow()
    require_equal(twins)
    assert orphans(twins.rig, "direct") == []
