"""NOT NULL, defaults and comments of the source come with the next transaction and are no reason for one."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.lake.catalog.reader import CatalogReader
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, EVERY_CATALOG, ApplyRig

T = "src.main.t"
HOSTILE = """it's "{}"; DROP TABLE t; -- $$ \\ ä\n"""
SAID = (
    f"ALTER TABLE {T} ALTER COLUMN v SET NOT NULL",
    f"ALTER TABLE {T} ALTER COLUMN n SET DEFAULT 7",
    f"ALTER TABLE {T} ALTER COLUMN v SET DEFAULT 'it''s'",
    f"ALTER TABLE {T} ALTER COLUMN d SET DEFAULT '2024-02-29'",
    f"COMMENT ON TABLE {T} IS 'all events'",
    f"COMMENT ON COLUMN {T}.v IS '{HOSTILE.replace(chr(39), chr(39) * 2)}'",
)


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """Two tenants of ten rows and one without any, not seeded yet."""
    made = make_rig()
    made.sql(
        f"CREATE TABLE {T} (id INTEGER, tenant VARCHAR, v VARCHAR, n INTEGER, d DATE, s STRUCT(a INTEGER))",
        f"INSERT INTO {T} SELECT i, chr((97 + i % 2)::INTEGER), 'v' || i, i, NULL, {{'a': i}} FROM range(20) r(i)",
    )
    for name in ("a", "b", "empty"):
        made.add(name)
    return made


def terms(lake: ResolvedLake) -> dict[str | None, Any]:
    """What a table's columns ask and say, by their names; None is the table."""
    with closing(CatalogReader(lake)) as catalog:
        table = catalog.table("main", "t", catalog.head().snapshot)
        assert table is not None
        comments = catalog.comments(table.table_id, table.snapshot)
        found: dict[str | None, Any] = {
            field.name: (field.terms, comments.columns.get(field.id)) for field in table.fields
        }
        return found | {None: comments.table}


def told(rig: ApplyRig, name: str = "a") -> list[str]:
    """What the newest stamp says of columns."""
    query = "SELECT commit_extra_info FROM dst.snapshots() WHERE author = 'viaduck' ORDER BY snapshot_id DESC LIMIT 1"
    ((text,),) = rig.look(name, query)
    return list(json.loads(text).get("columns", ()))


def applied(answer: Progress, path: CommitPath) -> None:
    assert (answer.outcome, answer.error, answer.commit) == (Outcome.APPLIED, None, path)


def assert_exact(rig: ApplyRig, name: str = "a") -> None:
    assert rig.rows(name) == rig.expected(name)
    assert terms(rig.lake(name)) == terms(rig.source)


@EVERY_CATALOG
def test_they_come_with_the_next_rows_and_commits_are_direct_again(rig: ApplyRig) -> None:
    rig.seed()
    position = rig.head
    rig.sql(*SAID)
    assert [each.outcome for each in rig.changes(position, "a", "b")] == [Outcome.EMPTY] * 2, "no reason for a commit"
    rig.sql(f"UPDATE {T} SET n = n + 1 WHERE id < 4")
    (answer,) = rig.changes(position, "a")
    applied(answer, CommitPath.EXTENSION)
    assert answer.left == ()
    assert_exact(rig)
    assert told(rig) == [
        "set NOT NULL of v", "set default of v", "set default of n", "set default of d", "comment on the table",
        "comment on v",
    ]  # fmt: skip
    rig.write("a", "INSERT INTO dst.main.t (id, tenant) VALUES (99, 'a')")
    assert [row[2:5] for row in rig.rows("a") if row[0] == 99] == rig.con.execute(
        "SELECT 'it''s', 7, DATE '2024-02-29'"
    ).fetchall(), "for rows that others insert"
    rig.write("a", "DELETE FROM dst.main.t WHERE id = 99")
    for _ in range(2):
        position = rig.head
        rig.sql(f"UPDATE {T} SET n = n + 1 WHERE id < 4", f"DELETE FROM {T} WHERE id = {position}")
        applied(rig.changes(position, "a")[0], CommitPath.DIRECT)
        assert told(rig) == []
        assert_exact(rig)


@EITHER_PATH
def test_a_seed_makes_the_table_with_them(rig: ApplyRig) -> None:
    rig.sql(*SAID)
    for name, reseeded in (("a", False), ("empty", False), ("a", True)):
        rig.add(name, replace=reseeded, generation=2 if reseeded else 1)
        if reseeded:
            rig.sql(f"COMMENT ON COLUMN {T}.n IS 'a number'", f"ALTER TABLE {T} ALTER COLUMN v DROP NOT NULL")
            rig.sql(f"UPDATE {T} SET v = NULL WHERE id = 2")
        (answer,) = rig.seed(name)
        assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
        assert_exact(rig, name)
        assert told(rig, name) == []
    position = rig.head
    rig.sql(f"UPDATE {T} SET n = n + 1 WHERE id < 4")
    expected = CommitPath.DIRECT if rig.limits.commit == "auto" else CommitPath.EXTENSION
    applied(rig.changes(position, "a")[0], expected)
    assert_exact(rig)


def test_nulls_are_allowed_before_rows_bring_them_and_forbidden_once_they_are_gone(rig: ApplyRig) -> None:
    rig.sql(*SAID)
    rig.seed()
    position = rig.head
    rig.sql(f"ALTER TABLE {T} ALTER COLUMN v DROP NOT NULL", f"UPDATE {T} SET v = NULL WHERE id = 2")
    applied(rig.changes(position, "a")[0], CommitPath.EXTENSION)
    assert_exact(rig)
    position = rig.head
    rig.sql(f"DELETE FROM {T} WHERE v IS NULL", f"ALTER TABLE {T} ALTER COLUMN v SET NOT NULL")
    applied(rig.changes(position, "a")[0], CommitPath.EXTENSION)
    assert_exact(rig)


def test_they_are_carried_together_with_columns(rig: ApplyRig) -> None:
    rig.seed()
    position = rig.head
    rig.sql(
        *SAID,
        f"ALTER TABLE {T} RENAME COLUMN v TO w",
        f"ALTER TABLE {T} ALTER COLUMN n SET DATA TYPE BIGINT",
        f"ALTER TABLE {T} ADD COLUMN v INTEGER DEFAULT 3",
        f"ALTER TABLE {T} ALTER COLUMN v DROP DEFAULT",
        f"COMMENT ON COLUMN {T}.v IS 'another'",
        f"UPDATE {T} SET n = n + 1 WHERE id < 4",
    )
    applied(rig.changes(position, "a")[0], CommitPath.EXTENSION)
    assert_exact(rig)


def test_an_advance_carries_them_and_what_is_refused_is_said(rig: ApplyRig) -> None:
    """DuckLake knows nothing of the columns of a table without rows."""
    rig.seed()
    position = rig.head
    rig.sql(*SAID)
    for name in ("a", "empty"):
        (answer,) = rig.run(ItemKind.ADVANCE, name, expected=position, after=rig.head)
        applied(answer, CommitPath.EXTENSION)
    assert_exact(rig)
    (refused,) = (each for each in told(rig, "empty") if each.startswith("not carried"))
    assert refused.startswith("not carried: set NOT NULL of v (")
    assert answer.left == (refused,)
    lacking, wanted = terms(rig.lake("empty")), terms(rig.source)
    assert not lacking["v"][0].required
    assert {name: each for name, each in lacking.items() if name != "v"} == {
        name: each for name, each in wanted.items() if name != "v"
    }
    position = rig.head
    rig.sql(f"INSERT INTO {T} VALUES (50, 'empty', 'x', 1, NULL, NULL)")
    (answer,) = rig.changes(position, "empty")
    applied(answer, CommitPath.EXTENSION)
    assert answer.left == ()
    assert_exact(rig, "empty")
    position = rig.head
    rig.sql(f"INSERT INTO {T} VALUES (51, 'empty', 'x', 1, NULL, NULL)")
    applied(rig.changes(position, "empty")[0], CommitPath.DIRECT)


def test_a_table_without_rows_may_forbid_nulls_once_it_has_some(rig: ApplyRig) -> None:
    rig.seed()
    position = rig.head
    rig.sql(*SAID, f"INSERT INTO {T} VALUES (50, 'empty', 'x', 1, NULL, NULL)")
    applied(rig.changes(position, "empty")[0], CommitPath.EXTENSION)
    assert_exact(rig, "empty")


@pytest.mark.parametrize("replace", [True, False], ids=["reseed", "rewind"])
def test_a_later_life_tells_what_its_table_does_not_get(rig: ApplyRig, replace: bool) -> None:
    rig.sql(f"ALTER TABLE {T} ALTER COLUMN d SET DEFAULT today()")
    for generation in (1, 2):
        rig.add("a", generation=generation, replace=replace)
        (answer,) = rig.seed("a")
        assert told(rig) == ["not carried: default of d (it is no plain value)"] == list(answer.left or ())
    applied(answer, CommitPath.DIRECT)


def test_expressions_are_left_alone(rig: ApplyRig) -> None:
    rig.seed()
    position = rig.head
    rig.sql(f"ALTER TABLE {T} ALTER COLUMN d SET DEFAULT today()", f"UPDATE {T} SET n = 0 WHERE id < 4")
    applied(rig.changes(position, "a")[0], CommitPath.DIRECT)
    assert told(rig) == ["not carried: default of d (it is no plain value)"]
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize("policy", [EvolutionPolicy.ADDITIVE, EvolutionPolicy.FREEZE])
def test_other_policies_leave_them_alone(rig: ApplyRig, policy: EvolutionPolicy) -> None:
    rig.add("a", evolution=policy)
    rig.add("b", comments=False)
    rig.seed()
    before, position = terms(rig.lake("a")), rig.head
    rig.sql(*SAID, f"UPDATE {T} SET n = n + 1 WHERE id < 4")
    mine, other = rig.changes(position, "a", "b")
    applied(mine, CommitPath.DIRECT)
    applied(other, CommitPath.EXTENSION)
    assert terms(rig.lake("a")) == before
    assert [each for each in told(rig, "b") if "comment" in each] == []
    assert terms(rig.lake("b"))["v"][0].required
