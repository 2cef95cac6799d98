"""Columns of the source change in any way, and a destination has them with the rows of its next transaction."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from services.applier.worker import worker_state
from shared.config.model import Routing
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import CommitPath, ItemKind, Outcome
from shared.lake.catalog.reader import CatalogReader
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig
from tests.lake.test_identity import parked_for

T = "src.main.t"

CHANGES = {
    "added with a default": (f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 7",),
    "dropped": (f"ALTER TABLE {T} DROP COLUMN n",),
    "dropped and added": (f"ALTER TABLE {T} DROP COLUMN v", f"ALTER TABLE {T} ADD COLUMN v VARCHAR DEFAULT 'x'"),
    "the last one dropped and added": (
        f"ALTER TABLE {T} DROP COLUMN m",
        f"ALTER TABLE {T} ADD COLUMN m MAP(VARCHAR, STRUCT(q INTEGER))",
    ),
    "renamed": (f"ALTER TABLE {T} RENAME COLUMN v TO w",),
    "renamed by case alone": (f"ALTER TABLE {T} RENAME COLUMN v TO V",),
    "renamed, and another of its name": (
        f"ALTER TABLE {T} RENAME COLUMN v TO w",
        f"ALTER TABLE {T} ADD COLUMN v INTEGER DEFAULT 3",
    ),
    "two swapped": (
        f"ALTER TABLE {T} RENAME COLUMN v TO x",
        f"ALTER TABLE {T} RENAME COLUMN u TO v",
        f"ALTER TABLE {T} RENAME COLUMN x TO u",
    ),
    "called with dots and emoji": (
        f'ALTER TABLE {T} RENAME COLUMN n TO "i.d"',
        f'ALTER TABLE {T} RENAME COLUMN u TO "s.a"',
        f'ALTER TABLE {T} ADD COLUMN "🦆.🦆" INTEGER DEFAULT 7',
        f"ALTER TABLE {T} DROP COLUMN v",
        f'ALTER TABLE {T} ADD COLUMN "." VARCHAR',
    ),
    "fields called with dots and emoji": (
        f'ALTER TABLE {T} RENAME COLUMN s.a TO "a.🦆"',
        f'ALTER TABLE {T} ADD COLUMN s."n.x" INTEGER',
        f'ALTER TABLE {T} RENAME COLUMN s TO "n.🦆"',
    ),
    "widened": (f"ALTER TABLE {T} ALTER COLUMN n SET DATA TYPE BIGINT",),
    "a default widened": (
        f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 5",
        f"ALTER TABLE {T} ALTER COLUMN w SET DATA TYPE BIGINT",
    ),
    "a key renamed and widened": (
        f"ALTER TABLE {T} RENAME COLUMN id TO ident",
        f"ALTER TABLE {T} ALTER COLUMN ident SET DATA TYPE BIGINT",
    ),
    "the routing column renamed": (f"ALTER TABLE {T} RENAME COLUMN tenant TO org",),
    "float, decimal": (
        f"ALTER TABLE {T} ALTER COLUMN f SET DATA TYPE DOUBLE",
        f"ALTER TABLE {T} ALTER COLUMN d SET DATA TYPE DECIMAL(18,2)",
    ),
    "fields of a struct": (
        f"ALTER TABLE {T} DROP COLUMN s.b",
        f"ALTER TABLE {T} RENAME COLUMN s.a TO aa",
        f"ALTER TABLE {T} ADD COLUMN s.c INTEGER DEFAULT 9",
        f"ALTER TABLE {T} ADD COLUMN s.b INTEGER",
    ),
    "fields two deep, and wider": (
        f"ALTER TABLE {T} RENAME COLUMN s.n.x TO y",
        f"ALTER TABLE {T} ADD COLUMN s.n.z VARCHAR DEFAULT 'z'",
        f"ALTER TABLE {T} ALTER COLUMN s SET DATA TYPE STRUCT(a BIGINT, b VARCHAR, n STRUCT(y BIGINT, z VARCHAR))",
        f"ALTER TABLE {T} RENAME COLUMN s TO ss",
    ),
    "all fields of a struct exchanged": (
        f"ALTER TABLE {T} ADD COLUMN s.n.w INTEGER DEFAULT 8",
        f"ALTER TABLE {T} DROP COLUMN s.n.x",
        f"ALTER TABLE {T} ADD COLUMN s.n.x INTEGER",
        f"ALTER TABLE {T} DROP COLUMN s.n.w",
    ),
    "within a list and a map": (
        f"ALTER TABLE {T} ADD COLUMN l.element.r VARCHAR",
        f"ALTER TABLE {T} RENAME COLUMN l.element.p TO pp",
        f"ALTER TABLE {T} RENAME COLUMN m.value.q TO qq",
        f"ALTER TABLE {T} ALTER COLUMN m SET DATA TYPE MAP(VARCHAR, STRUCT(qq BIGINT))",
    ),
    "a struct added, and changed since": (
        f"ALTER TABLE {T} ADD COLUMN st STRUCT(a INTEGER)",
        f"ALTER TABLE {T} ADD COLUMN st.b STRUCT(c INTEGER)",
        f"ALTER TABLE {T} RENAME COLUMN st.a TO aa",
        f"ALTER TABLE {T} ADD COLUMN st.b.d INTEGER DEFAULT 4",
    ),
    "everything": (
        f"ALTER TABLE {T} RENAME COLUMN id TO key",
        f"ALTER TABLE {T} RENAME COLUMN tenant TO org",
        f"ALTER TABLE {T} DROP COLUMN u",
        f"ALTER TABLE {T} RENAME COLUMN v TO u",
        f"ALTER TABLE {T} ADD COLUMN v DATE DEFAULT '2024-02-29'",
        f"ALTER TABLE {T} ALTER COLUMN key SET DATA TYPE BIGINT",
        f"ALTER TABLE {T} DROP COLUMN l",
    ),
}

BY_EXTENSION = frozenset(
    {
        "widened",
        "a key renamed and widened",
        "float, decimal",
        "fields of a struct",
        "fields called with dots and emoji",
        "fields two deep, and wider",
        "all fields of a struct exchanged",
        "within a list and a map",
        "everything",
    }
)
"""What changes a type, or something within a column."""


def committed(what: str) -> CommitPath:
    return CommitPath.EXTENSION if what in BY_EXTENSION else CommitPath.DIRECT


@pytest.fixture
def routing() -> Routing:
    return Routing(field="tenant", key_columns=("id",))


@pytest.fixture
def shaped(make_rig: MakeRig, routing: Routing) -> ApplyRig:
    """Two seeded tenants of twenty rows, with columns of all kinds."""
    made = make_rig(routing=routing)
    made.sql(
        f"CREATE TABLE {T} (id INTEGER, tenant VARCHAR, v VARCHAR, u VARCHAR, n INTEGER, f FLOAT, d DECIMAL(10,2),"
        " s STRUCT(a INTEGER, b VARCHAR, n STRUCT(x INTEGER)), l STRUCT(p INTEGER)[],"
        " m MAP(VARCHAR, STRUCT(q INTEGER)))",
        f"INSERT INTO {T} SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, 'v' || i, 'u' || i, i, i / 3, i / 4,"
        " CASE WHEN i % 5 = 0 THEN NULL ELSE {'a': i, 'b': 'b' || i, 'n': {'x': i}} END,"
        " [{'p': i}, NULL], MAP {'k': {'q': i}} FROM range(40) r(i)",
    )
    made.add("a")
    made.add("b")
    made.seed()
    return made


def name_now(rig: ApplyRig, configured: str) -> str:
    """What the column is called now that the configuration names; asked of the instance that has the source open."""
    with closing(CatalogReader.attached(rig.source, rig.con, "src")) as catalog:
        table = catalog.table("main", "t", rig.head)
        column = None if table is None else table.identified(configured)
    assert column is not None
    return column.name


def assert_exact(rig: ApplyRig) -> None:
    where = f"SELECT * FROM {T} WHERE {name_now(rig, 'tenant')} = ?"
    for name in rig.destinations:
        described, rows = rig.described(name)
        assert described == [row[:2] for row in rig.con.execute(f"DESCRIBE {T}").fetchall()]
        expected = sorted(rig.con.execute(where, [rig.destinations[name].routing_value]).fetchall(), key=repr)
        assert rows == expected


def alone(rig: ApplyRig) -> None:
    """A commit that touches another table."""
    rig.sql("CREATE TABLE IF NOT EXISTS src.main.other (i INTEGER)", "INSERT INTO src.main.other VALUES (1)")


@pytest.mark.parametrize("what", CHANGES)
def test_columns_are_followed_together_with_rows_and_commits_after_that_are_direct(shaped: ApplyRig, what: str) -> None:
    position = shaped.head
    shaped.sql(f"UPDATE {T} SET n = 0 WHERE id IN (2, 3, 30, 31)")
    assert {each.commit for each in shaped.changes(position)} == {CommitPath.DIRECT}, "what is remembered of files"
    position = shaped.head
    shaped.sql(f"UPDATE {T} SET n = n + 100 WHERE id < 4", *CHANGES[what])
    key = name_now(shaped, "id")
    shaped.sql(f"DELETE FROM {T} WHERE {key} IN (6, 7)", f"UPDATE {T} SET {key} = {key} + 1000 WHERE {key} IN (8, 9)")
    answers = shaped.changes(position)
    assert [(each.outcome, each.error) for each in answers] == [(Outcome.APPLIED, None)] * 2
    assert {each.commit for each in answers} == {committed(what)}
    assert_exact(shaped)
    for forgets in (False, True):
        if forgets:
            worker_state.forget()
        position, first = shaped.head, 20 if forgets else 10
        shaped.sql(
            f"DELETE FROM {T} WHERE {key} IN ({first}, {first + 1})",
            f"UPDATE {T} SET {key} = {key} + 1000 WHERE {key} IN ({first + 2}, {first + 3})",
            f"UPDATE {T} SET f = f + 1 WHERE {key} IN ({first + 4}, {first + 5})",
        )
        answers = shaped.changes(position)
        assert [(each.outcome, each.error) for each in answers] == [(Outcome.APPLIED, None)] * 2
        assert {(each.commit, each.commit_reason) for each in answers} == {(CommitPath.DIRECT, None)}
        assert_exact(shaped)


@pytest.mark.parametrize("what", CHANGES)
def test_they_are_followed_without_any_row(shaped: ApplyRig, what: str) -> None:
    position = shaped.head
    shaped.sql(*CHANGES[what])
    alone(shaped)
    files = sorted(shaped.folder.rglob("*.parquet"))
    answers = shaped.run(ItemKind.ADVANCE, expected=position, after=shaped.head)
    assert [(each.outcome, each.error) for each in answers] == [(Outcome.APPLIED, None)] * 2
    assert {each.commit for each in answers} == {committed(what)}
    assert sorted(shaped.folder.rglob("*.parquet")) == files
    assert_exact(shaped)


def test_a_range_whose_rows_are_of_nobody_brings_columns_all_the_same(shaped: ApplyRig) -> None:
    position = shaped.head
    shaped.sql(f"ALTER TABLE {T} RENAME COLUMN v TO w", f"INSERT INTO {T} (id, tenant) VALUES (1, 'nobody')")
    assert [each.outcome for each in shaped.changes(position)] == [Outcome.APPLIED] * 2
    assert_exact(shaped)


def test_the_stamp_says_what_became_of_the_columns(shaped: ApplyRig) -> None:
    position = shaped.head
    shaped.sql(*CHANGES["everything"], f"ALTER TABLE {T} ADD COLUMN s.c INTEGER")
    shaped.changes(position, "a")
    ((text,),) = shaped.look("a", "SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert json.loads(text)["columns"] == [
        "drop u", "drop l", "rename id to key", "rename tenant to org", "rename v to u", "add v DATE",
        "add s.c INTEGER", "widen id to BIGINT",
    ]  # fmt: skip


def test_every_snapshot_of_a_destination_is_what_the_source_was_at_its_position(shaped: ApplyRig) -> None:
    """By time travel, in the columns of then."""
    seen = {}
    for what in ("renamed, and another of its name", "widened", "fields of a struct", "the last one dropped and added"):
        position = shaped.head
        shaped.sql(*CHANGES[what], f"UPDATE {T} SET d = d + 1 WHERE id % 3 = 0", f"DELETE FROM {T} WHERE id % 11 = 0")
        (answer,) = shaped.changes(position, "a")
        assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
        ((newest,),) = shaped.look("a", "SELECT max(snapshot_id) FROM dst.snapshots()")
        seen[newest] = shaped.expected("a")
    for snapshot, rows in seen.items():
        found = shaped.look("a", f"SELECT * FROM dst.main.t AT (VERSION => {snapshot})")
        assert sorted(found, key=repr) == rows


# -- policies ---------------------------------------------------------------------------------------------------------

POLICIES = {
    ("freeze", "added with a default"): False,
    ("freeze", "widened"): False,
    ("freeze", "renamed"): False,
    ("freeze", "the routing column renamed"): True,
    ("additive", "added with a default"): True,
    ("additive", "widened"): True,
    ("additive", "a default widened"): True,
    ("additive", "renamed"): False,
    ("additive", "dropped"): False,
    ("additive", "dropped and added"): False,
    ("additive", "fields of a struct"): False,
    ("additive", "the routing column renamed"): True,
}


@pytest.mark.parametrize(("policy", "what"), POLICIES)
def test_a_policy_decides_what_is_followed(shaped: ApplyRig, policy: str, what: str) -> None:
    position, before = shaped.head, shaped.rows("a")
    shaped.add("a", evolution=EvolutionPolicy(policy))
    shaped.sql(*CHANGES[what], f"DELETE FROM {T} WHERE id < 4")
    mine, other = shaped.changes(position)
    assert other.outcome is Outcome.APPLIED
    if POLICIES[policy, what]:
        assert (mine.outcome, mine.error) == (Outcome.APPLIED, None)
        assert_exact(shaped)
        return
    assert f"evolution.policy: {policy}" in parked_for(mine, "schema_change")
    assert shaped.rows("a") == before
    shaped.add("a", evolution=EvolutionPolicy.FOLLOW)
    assert [each.outcome for each in shaped.changes(position, "a")] == [Outcome.APPLIED]
    assert_exact(shaped)


# -- what can't be followed -------------------------------------------------------------------------------------------

REPLACED = {
    "the column tenant was dropped": (
        f"ALTER TABLE {T} DROP COLUMN tenant",
        f"ALTER TABLE {T} ADD COLUMN tenant VARCHAR",
    ),
    "the column id was dropped": (f"ALTER TABLE {T} DROP COLUMN id", f"ALTER TABLE {T} ADD COLUMN id INTEGER"),
    "the column tenant was renamed to org, and another one has its name": (
        f"ALTER TABLE {T} RENAME COLUMN tenant TO org",
        f"ALTER TABLE {T} ADD COLUMN tenant VARCHAR",
    ),
}


@pytest.mark.parametrize("policy", list(EvolutionPolicy))
@pytest.mark.parametrize("why", REPLACED)
def test_another_routing_or_key_column_parks_under_every_policy(
    shaped: ApplyRig, why: str, policy: EvolutionPolicy
) -> None:
    position, before = shaped.head, shaped.rows("a")
    shaped.add("a", evolution=policy)
    shaped.sql(*REPLACED[why], f"INSERT INTO {T} (id, tenant) VALUES (100, 'a')")
    (answer,) = shaped.changes(position, "a")
    assert why in parked_for(answer, "schema_change")
    assert shaped.rows("a") == before


def test_the_file_may_take_the_new_name_of_its_columns(shaped: ApplyRig) -> None:
    position = shaped.head
    shaped.sql(
        f"ALTER TABLE {T} RENAME COLUMN tenant TO org",
        f"ALTER TABLE {T} ADD COLUMN tenant VARCHAR",
        f"ALTER TABLE {T} RENAME COLUMN id TO no",
        f"DELETE FROM {T} WHERE no < 5",
    )
    shaped.routing = Routing(field="org", key_columns=("no",))
    assert [(each.outcome, each.error) for each in shaped.changes(position)] == [(Outcome.APPLIED, None)] * 2
    found = shaped.con.execute(f"SELECT * FROM {T} WHERE org = 'a'").fetchall()
    assert shaped.rows("a") == sorted(found, key=repr)


@pytest.mark.parametrize("type", ["DOUBLE"])
def test_a_routing_column_whose_values_are_spelled_otherwise_parks(make_rig: MakeRig, type: str) -> None:
    rig = make_rig()
    rig.sql(f"CREATE TABLE {T} (id INTEGER, tenant FLOAT)", f"INSERT INTO {T} VALUES (1, 1.5), (2, 0.1)")
    rig.add("a", "1.5")
    rig.seed()
    position = rig.head
    rig.sql(f"ALTER TABLE {T} ALTER COLUMN tenant SET DATA TYPE {type}", f"INSERT INTO {T} VALUES (3, 1.5)")
    (answer,) = rig.changes(position)
    assert "tenant was FLOAT and is DOUBLE now" in parked_for(answer, "schema_change")


def test_a_routing_column_of_integers_may_become_wider(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(f"CREATE TABLE {T} (id INTEGER, tenant INTEGER)", f"INSERT INTO {T} VALUES (1, 7), (2, 8)")
    rig.add("a", "7")
    rig.seed()
    position = rig.head
    rig.sql(f"ALTER TABLE {T} ALTER COLUMN tenant SET DATA TYPE BIGINT", f"INSERT INTO {T} VALUES (3, 7)")
    assert [(each.outcome, each.error) for each in rig.changes(position)] == [(Outcome.APPLIED, None)]
    assert rig.rows("a") == rig.expected("a")


def test_a_table_that_its_owner_altered_parks_and_is_left_alone(shaped: ApplyRig) -> None:
    position = shaped.head
    shaped.write("a", "ALTER TABLE dst.main.t RENAME COLUMN u TO mine")
    before = shaped.rows("a")
    shaped.sql(f"ALTER TABLE {T} RENAME COLUMN v TO w", f"DELETE FROM {T} WHERE id < 4")
    (answer,) = shaped.changes(position, "a")
    assert "mine" in parked_for(answer, "table_mismatch")
    assert shaped.rows("a") == before


@pytest.mark.parametrize(("layout", "reset"), [("PARTITIONED BY (u)", "PARTITIONED"), ("SORTED BY (u ASC)", "SORTED")])
def test_a_column_that_its_owner_has_laid_it_out_by_parks_with_the_statement_that_helps(
    shaped: ApplyRig, layout: str, reset: str
) -> None:
    position = shaped.head
    shaped.write("a", f"ALTER TABLE dst.main.t SET {layout}")
    shaped.sql(f"ALTER TABLE {T} DROP COLUMN u", f"DELETE FROM {T} WHERE id < 4")
    (answer,) = shaped.changes(position, "a")
    parked_for(answer, "schema_change")
    assert answer.error is not None
    assert f'ALTER TABLE "main"."t" RESET {reset} BY;' in answer.error.hint
    shaped.write("a", f"ALTER TABLE dst.main.t RESET {reset} BY")
    assert [(each.outcome, each.error) for each in shaped.changes(position, "a")] == [(Outcome.APPLIED, None)]
    assert shaped.rows("a") == shaped.expected("a")


# -- without keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("maintained", [False, True])
@pytest.mark.parametrize("routing", [Routing(field="tenant")])
def test_appended_rows_are_mapped_by_identity(shaped: ApplyRig, what: str, maintained: bool) -> None:
    """A rewrite between them, so that the reading has two runs: one in the columns of before."""
    position = shaped.head
    more = f"INSERT INTO {T} SELECT * FROM {T} AT (VERSION => {position})"
    shaped.sql(more)
    if maintained:
        shaped.sql("CALL ducklake_merge_adjacent_files('src')")
    shaped.sql(*CHANGES[what])
    now = [row[0] for row in shaped.con.execute(f"DESCRIBE {T}").fetchall()]
    named = ", ".join(f'"{each}"' for each in now)
    shaped.sql(f"INSERT INTO {T} SELECT {named} FROM {T} WHERE f < 3")
    answers = shaped.changes(position, pinned=True)
    assert [(each.outcome, each.error) for each in answers] == [(Outcome.APPLIED, None)] * 2
    assert_exact(shaped)


FORGETTING = {
    "widened": "ALTER TABLE src.main.t ALTER COLUMN s SET DATA TYPE STRUCT(a BIGINT, f BIGINT)",
    "renamed": "ALTER TABLE src.main.t RENAME COLUMN s.f TO g",
}


@EITHER_PATH
@pytest.mark.parametrize("change", FORGETTING)
def test_a_field_that_has_forgotten_its_default_parks_until_a_reseed(make_rig: MakeRig, change: str) -> None:
    """H26: the source shows NULL where it showed the default, of which no image tells, and the destination has it."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, s STRUCT(a INTEGER))",
        "INSERT INTO src.main.t VALUES (1, 'a', {'a': 1})",
        "ALTER TABLE src.main.t ADD COLUMN s.f INTEGER DEFAULT 7",
    )
    rig.add("a")
    rig.seed()
    position = rig.head
    rig.sql(FORGETTING[change], "INSERT INTO src.main.t (id, tenant) VALUES (2, 'a')")
    (refused,) = rig.changes(position)
    assert refused.outcome is Outcome.PARKED
    assert refused.error is not None
    assert refused.error.type == "schema_change"
    assert "s.f has lost its default" in refused.error.message
    rig.add("a", generation=2, replace=True)
    rig.seed()
    assert rig.rows("a") == rig.expected("a")
