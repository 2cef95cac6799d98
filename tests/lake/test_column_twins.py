"""Columns that Viaduck adds, renames and drops itself are what DuckLake's extension makes of a twin, row by row of the
catalog, and the extension goes on from either."""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import ExitStack
from typing import Any

import duckdb
import pytest

from services.applier.model.task import Limits
from shared.contracts.messages import ItemKind
from shared.lake.sql import ident
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.twin_lakes import CATALOG, Lake, orphans, require_same_histories
from tests.lake.twins import CLEAN_UP, EXPIRE, TWINS, Twins

T = "src.main.t"

SHAPES = {
    "INTEGER": ["7", "-1"],
    "BIGINT": ["9223372036854775807"],
    "VARCHAR": ["it''s", "", "NULL"],
    "DOUBLE": ["1e300", "nan"],
    "DECIMAL(18, 4)": ["5"],
    "DATE": ["2024-02-29"],
    "TIMESTAMPTZ": ["2024-01-01 12:00:00+02"],
    "BOOLEAN": ["true"],
    "UUID": ["00000000-0000-0000-0000-000000000001"],
    "BLOB": ["\\x00\\xFFa"],
    "INTERVAL": ["3 days"],
    "JSON": ['{"a": 1}'],
    'STRUCT(a INTEGER, "B c" VARCHAR[])': [],
    "INTEGER[]": [],
    "MAP(VARCHAR, STRUCT(q INTEGER))": [],
}
"""Types of columns that come, and defaults with which they may."""

NAMES = ("x", "Y", "a b", 'q"t', "ä{}", "select", "a.b", ".", "🦆")

OTHERS = {
    "VARCHAR": "'v' || i",
    "DOUBLE": "i / 3",
    "DATE": "DATE '2024-01-01' + CAST(i AS INTEGER)",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i) HOUR",
    "BOOLEAN": "i % 2 = 0",
    "UUID": "NULL",
    "BLOB": "encode('b' || i)",
    "INTERVAL": "INTERVAL (i) DAY",
    "JSON": "to_json(i)",
    'STRUCT(a INTEGER, "B c" VARCHAR[])': "{'a': i, 'B c': ['x', NULL]}",
    "INTEGER[]": "[i, NULL]",
    "MAP(VARCHAR, STRUCT(q INTEGER))": "MAP {'k': {'q': i}}",
}
"""Values of a row ``i``; of other types the number itself."""


class ColumnTwins(Twins):
    """Twins whose source's columns come, go and are called otherwise; ``columns`` are its present ones, with types."""

    def __init__(self, rig: ApplyRig, rng: random.Random) -> None:
        self.rig, self.rng = rig, rng
        self.next_id = 0
        self.positions = dict.fromkeys(TWINS, -1)
        self.paths, self.reasons = Counter[str](), Counter[str | None]()
        self.columns = {"id": "BIGINT", "tenant": "VARCHAR", "v": "VARCHAR", "n": "INTEGER"}
        self.key, self.routing = "id", "tenant"
        rig.sql(f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, v VARCHAR, n INTEGER)")
        for name in TWINS:
            rig.add(name, "a")
            rig.write(name)

    def insert(self, count: int) -> str:
        said = ", ".join(self._value(name, kind) for name, kind in self.columns.items())
        first, self.next_id = self.next_id, self.next_id + count
        return f"INSERT INTO {T} BY POSITION SELECT {said} FROM range({first}, {self.next_id}) r(i)"

    def _value(self, name: str, kind: str) -> str:
        if name in (self.key, self.routing):
            return "i" if name == self.key else "CASE WHEN i % 4 = 0 THEN 'b' ELSE 'a' END"
        empty = self.rng.choice(["false", "i % 3 = 0", "true"])
        return f"CASE WHEN {empty} THEN NULL ELSE CAST({OTHERS.get(kind, 'i % 100')} AS {kind}) END"

    @property
    def plain(self) -> list[str]:
        return [name for name in self.columns if name not in (self.key, self.routing)]

    def rows(self) -> list[str]:
        key = ident(self.key)
        some = f"{key} % 7 = {self.rng.randrange(7)}"
        changed = ident(self.rng.choice(self.plain)) if self.plain else key
        return self.rng.choice(
            [
                [self.insert(self.rng.randrange(1, 12))],
                [f"DELETE FROM {T} WHERE {some}"],
                [f"UPDATE {T} SET {changed} = NULL WHERE {some}"] if self.plain else [],
                [f"UPDATE {T} SET {key} = {key} + 100000 WHERE {some} AND {key} < 100000"],
                [],
            ]
        )

    def alter(self) -> list[str]:
        return self.rng.choice([self._add, self._add, self._rename, self._drop, self._swap])()

    def _add(self) -> list[str]:
        free = [name for name in NAMES if name.lower() not in {each.lower() for each in self.columns}]
        if not free:
            return []
        name, kind = self.rng.choice(free), self.rng.choice(list(SHAPES))
        self.columns[name] = kind
        defaults = SHAPES[kind] if self.rng.random() < 0.6 else []
        said = f" DEFAULT '{self.rng.choice(defaults)}'" if defaults else ""
        return [f"ALTER TABLE {T} ADD COLUMN {ident(name)} {kind}{said}"]

    def _rename(self) -> list[str]:
        old = self.rng.choice(list(self.columns))
        free = [name for name in (*NAMES, old.swapcase()) if name not in self.columns]
        free = [name for name in free if name.lower() not in {each.lower() for each in self.columns} - {old.lower()}]
        return self._renamed([(old, self.rng.choice(free))]) if free else []

    def _swap(self) -> list[str]:
        """Not of the columns that the configuration names: another one of that name would be meant."""
        if len(self.plain) < 2:
            return []
        one, other = self.rng.sample(self.plain, 2)
        return self._renamed([(one, "spare"), (other, one), ("spare", other)])

    def _renamed(self, pairs: list[tuple[str, str]]) -> list[str]:
        for old, new in pairs:
            self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
            self.key = new if self.key == old else self.key
            self.routing = new if self.routing == old else self.routing
        return [f"ALTER TABLE {T} RENAME COLUMN {ident(old)} TO {ident(new)}" for old, new in pairs]

    def _drop(self) -> list[str]:
        if not self.plain:
            return []
        name = self.rng.choice(self.plain)
        del self.columns[name]
        return [f"ALTER TABLE {T} DROP COLUMN {ident(name)}"]

    def wanted(self) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The source's columns, and the rows of the tenant."""
        rows = self.rig.con.execute(f"SELECT * FROM {T} WHERE {ident(self.routing)} = 'a'").fetchall()
        return [row[:2] for row in self.rig.con.execute(f"DESCRIBE {T}").fetchall()], sorted(map(repr, rows))

    def filters(self) -> list[str]:
        """Tests that DuckLake prunes files by, on every column and with values that it has at the source."""
        tests = []
        for name, kind in self.columns.items():
            own = ident(name)
            tests += [f"{own} IS NULL", f"{own} IS NOT NULL"]
            if kind.partition("(")[0] in COMPARED:
                values = f"SELECT DISTINCT CAST({own} AS VARCHAR) FROM {T} WHERE {own} IS NOT NULL LIMIT 3"
                for (value,) in self.rig.con.execute(values).fetchall():
                    tests += [f"{own} {sign} CAST($${value}$$ AS {kind})" for sign in ("=", "<=", ">=")]
        return tests


COMPARED = frozenset({"INTEGER", "BIGINT", "VARCHAR", "DOUBLE", "DATE", "TIMESTAMPTZ", "DECIMAL", "BOOLEAN", "UUID"})


def counted(con: duckdb.DuckDBPyConnection, table: str, tests: list[str], where: str = "true") -> list[int]:
    return [con.execute(f"SELECT count(*) FROM {table} WHERE ({each}) AND {where}").fetchall()[0][0] for each in tests]


def columns_said(con: duckdb.DuckDBPyConnection, at: dict[int, int]) -> list[tuple[Any, ...]]:
    """What the catalog says of the table's columns, ended ones too, with positions in the place of snapshots."""
    rows = con.execute(
        f"SELECT c.* EXCLUDE (table_id, begin_snapshot, end_snapshot), begin_snapshot, end_snapshot"
        f" FROM {CATALOG}column c WHERE c.table_id IN (SELECT table_id FROM {CATALOG}table WHERE table_name = 't')"
    ).fetchall()
    return sorted(((*row[:-2], at.get(row[-2]), at.get(row[-1])) for row in rows), key=repr)


def versions_said(con: duckdb.DuckDBPyConnection, at: dict[int, int]) -> list[tuple[Any, ...]]:
    """The positions that altered the table, each with what the catalog says of it."""
    rows = con.execute(
        f"SELECT v.begin_snapshot, v.schema_version = s.schema_version, s.next_catalog_id, c.changes_made"
        f" FROM {CATALOG}schema_versions v JOIN {CATALOG}snapshot s ON s.snapshot_id = v.begin_snapshot"
        f" JOIN {CATALOG}snapshot_changes c ON c.snapshot_id = v.begin_snapshot"
        f" WHERE v.table_id IN (SELECT table_id FROM {CATALOG}table WHERE table_name = 't')"
    ).fetchall()
    kinds = re.compile(r":\d+")
    altered = [row for row in rows if row[0] in at and "created" not in row[-1]]
    return sorted((at[row[0]], *row[1:-1], kinds.sub("", row[-1])) for row in altered)


def stats_said(con: duckdb.DuckDBPyConnection) -> set[int]:
    return _columns_in(con, "table_column_stats", "true")


def unbounded(con: duckdb.DuckDBPyConnection) -> set[int]:
    """Texts of which a file has no bounds. A direct commit then leaves one bound of the column open, and where the
    extension commits later, the column's statistics are deleted before (H24): readers believe none."""
    return _columns_in(
        con,
        "file_column_stats",
        f"min_value IS NULL AND column_id IN (SELECT column_id FROM {CATALOG}column c"
        " WHERE c.table_id = k.table_id AND column_type IN ('varchar', 'json'))",
    )


def _columns_in(con: duckdb.DuckDBPyConnection, kind: str, condition: str) -> set[int]:
    found = con.execute(
        f"SELECT column_id FROM {CATALOG}{kind} k WHERE {condition}"
        f" AND table_id IN (SELECT table_id FROM {CATALOG}table WHERE table_name = 't')"
    ).fetchall()
    return {column for (column,) in found}


def require_equal(twins: ColumnTwins) -> None:
    columns, rows = twins.wanted()
    filters = twins.filters()
    found = counted(twins.rig.con, T, filters, f"{ident(twins.routing)} = 'a'")
    with ExitStack() as opened:
        cons = {name: opened.enter_context(twins.rig.opened(name)) for name in TWINS}
        lakes = {name: Lake(con) for name, con in cons.items()}
        theirs = lakes["extension"].stamped()
        at = {snapshot: position for position, snapshot in theirs.items()}
        said, versions = columns_said(cons["extension"], at), versions_said(cons["extension"], at)
        for name, con in cons.items():
            assert [row[:2] for row in con.execute("DESCRIBE dst.main.t").fetchall()] == columns, name
            assert lakes[name].bag("SELECT * FROM dst.main.t") == rows, name
            mine = lakes[name].stamped()
            assert mine.keys() == theirs.keys(), name
            at = {snapshot: position for position, snapshot in mine.items()}
            assert columns_said(con, at) == said, name
            assert versions_said(con, at) == versions, name
            assert stats_said(con) ^ stats_said(cons["extension"]) <= unbounded(con), name
        require_same_histories(lakes, "extension", twins.rng)
        cons["direct"].execute("RESET disabled_optimizers")
        assert counted(cons["direct"], "dst.main.t", filters) == found


def require_same_pasts(twins: ColumnTwins) -> None:
    """Of commits by Viaduck and by the owner."""
    with ExitStack() as opened:
        lakes = {name: Lake(opened.enter_context(twins.rig.opened(name))) for name in TWINS}
        require_same_histories(lakes, "extension", twins.rng)


@pytest.fixture
def twins(make_rig: MakeRig, request: pytest.FixtureRequest) -> ColumnTwins:
    made = ColumnTwins(make_rig(limits=Limits(threads=1, most_threads=1)), random.Random(request.node.name))
    made.rig.sql(made.insert(30))
    made.follow(ItemKind.SEED)
    made.paths.clear()
    made.reasons.clear()
    return made


def play(twins: ColumnTwins, rounds: int) -> None:
    """Columns change in each round, in every third without a row."""
    for number in range(rounds):
        idle = number % 3 == 2
        made = [twins.alter()] if idle else [twins.rows(), twins.alter(), twins.alter(), twins.rows()]
        twins.rig.sql(*(statement for each in made for statement in each))
        twins.follow(ItemKind.ADVANCE if idle else ItemKind.CHANGES)


def test_twins_whose_columns_change_are_equal_and_the_extension_goes_on(twins: ColumnTwins) -> None:
    play(twins, 9)
    require_equal(twins)
    assert (twins.paths["direct: extension"], twins.paths["extension: direct"]) == (0, 0), twins.reasons
    assert twins.paths["direct: direct"] >= 4
    twins.expire()
    play(twins, 2)
    assert (twins.paths["direct: extension"], twins.paths["extension: direct"]) == (0, 0), twins.reasons
    assert [orphans(twins.rig, name) for name in TWINS] == [[], [], []]
    key, routing = ident(twins.key), ident(twins.routing)
    for statements in (
        ("ALTER TABLE dst.main.t ADD COLUMN zz INTEGER DEFAULT 4", "ALTER TABLE dst.main.t RENAME COLUMN zz TO zzz"),
        (f"INSERT INTO dst.main.t ({key}, {routing}, zzz) VALUES (-1, 'a', 5)",),
        ("CALL ducklake_merge_adjacent_files('dst')",),
        (f"UPDATE dst.main.t SET zzz = 9 WHERE {key} % 2 = 0", f"DELETE FROM dst.main.t WHERE {key} % 5 = 0"),
        ("CALL ducklake_rewrite_data_files('dst', 't', delete_threshold => 0.01)",),
        ("ALTER TABLE dst.main.t DROP COLUMN zzz",),
        (EXPIRE, CLEAN_UP),
    ):
        if EXPIRE in statements:
            require_same_pasts(twins)
        twins.maintain(*statements)
        shown = {name: list(map(repr, twins.rig.rows(name))) for name in TWINS}  # NaN equals itself as a text
        assert shown["direct"] == shown["extension"] == shown["mixed"], statements
