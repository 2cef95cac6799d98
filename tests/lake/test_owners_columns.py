"""What a destination's owner makes of its table's columns that names and types do not tell, and its rows do."""

from __future__ import annotations

import pytest

from services.applier.worker import worker_state
from shared.contracts.messages import ItemKind, Outcome
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig
from tests.lake.test_identity import parked_for

T, OWN = "src.main.t", "dst.main.t"

LOST = {
    "the last one dropped": ((f"ALTER TABLE {OWN} DROP COLUMN v",), ()),
    "the last two dropped": ((f"ALTER TABLE {OWN} DROP COLUMN v", f"ALTER TABLE {OWN} DROP COLUMN n"), ()),
    "the last one dropped and added": (
        (f"ALTER TABLE {OWN} DROP COLUMN v", f"ALTER TABLE {OWN} ADD COLUMN v VARCHAR"),
        (),
    ),
    "dropped and added, beside a change of the source": (
        (f"ALTER TABLE {OWN} DROP COLUMN v", f"ALTER TABLE {OWN} ADD COLUMN v VARCHAR"),
        (f"ALTER TABLE {T} ADD COLUMN w INTEGER",),
    ),
    "dropped, beside a change of the source": (
        (f"ALTER TABLE {OWN} DROP COLUMN v",),
        (f"ALTER TABLE {T} ADD COLUMN w INTEGER",),
    ),
    "dropped and added where the source renamed": (
        (f"ALTER TABLE {OWN} DROP COLUMN v", f"ALTER TABLE {OWN} ADD COLUMN w VARCHAR"),
        (f"ALTER TABLE {T} RENAME COLUMN v TO w",),
    ),
    "added with another default": (
        (f"ALTER TABLE {OWN} ADD COLUMN w INTEGER",),
        (f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 7",),
    ),
}
"""What the owner of the destination did, and what became of the source's columns."""

KEPT = {
    "added as the source did": (
        (f"ALTER TABLE {OWN} ADD COLUMN w DATE DEFAULT '2024-2-9'",),
        (f"ALTER TABLE {T} ADD COLUMN w DATE DEFAULT '2024-02-09'",),
    ),
    "renamed as the source did": (
        (f"ALTER TABLE {OWN} RENAME COLUMN v TO w",),
        (f"ALTER TABLE {T} RENAME COLUMN v TO w",),
    ),
    "dropped as the source did": ((f"ALTER TABLE {OWN} DROP COLUMN v",), (f"ALTER TABLE {T} DROP COLUMN v",)),
    "dropped and added as the source did": (
        (f"ALTER TABLE {OWN} DROP COLUMN v", f"ALTER TABLE {OWN} ADD COLUMN v VARCHAR DEFAULT 'x'"),
        (f"ALTER TABLE {T} DROP COLUMN v", f"ALTER TABLE {T} ADD COLUMN v VARCHAR DEFAULT 'x'"),
    ),
    "widened as the source did": (
        (f"ALTER TABLE {OWN} ALTER COLUMN n SET DATA TYPE BIGINT",),
        (f"ALTER TABLE {T} ALTER COLUMN n SET DATA TYPE BIGINT",),
    ),
    "renamed there and back": (
        (f"ALTER TABLE {OWN} RENAME COLUMN v TO w", f"ALTER TABLE {OWN} RENAME COLUMN w TO v"),
        (),
    ),
    "terms and comments": (
        (f"ALTER TABLE {OWN} ALTER COLUMN v SET DEFAULT 'mine'", f"COMMENT ON COLUMN {OWN}.v IS 'mine'"),
        (),
    ),
    "one added and dropped": ((f"ALTER TABLE {OWN} ADD COLUMN w INTEGER", f"ALTER TABLE {OWN} DROP COLUMN w"), ()),
}


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A seeded tenant with rows in files."""
    made = make_rig()
    made.sql(
        f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, n INTEGER, v VARCHAR)",
        f"INSERT INTO {T} SELECT i, 'a', i, 'v' || i FROM range(20) r(i)",
    )
    made.add("a")
    made.seed()
    return made


ROWS = f"UPDATE {T} SET n = 7 WHERE id = 3"
FOREIGN = "CREATE TABLE src.main.other (i INTEGER)"


@EITHER_PATH
@pytest.mark.parametrize("what", LOST)
def test_values_that_went_with_their_column_park(rig: ApplyRig, what: str) -> None:
    first = rig.head
    rig.sql(ROWS)
    rig.changes(first, "a")
    position = rig.head
    for statement in LOST[what][0]:
        rig.write("a", statement)
    before = rig.rows("a")
    rig.sql(*LOST[what][1], ROWS)
    for look in ("of a worker that knows the table", "again, once it was resumed as it is", "the first of a worker"):
        (answer,) = rig.changes(position, "a")
        said = parked_for(answer, "table_mismatch")
        assert ("w" if "default" in what else "v") in said
        assert answer.error is not None
        assert ("DROP COLUMN" if "default" in what else "reseed") in answer.error.hint, look
        if look.startswith("again"):
            worker_state.forget()
    assert rig.rows("a") == before


@EITHER_PATH
@pytest.mark.parametrize("what", [what for what, (_, source) in LOST.items() if source])
def test_an_advance_parks_as_well(rig: ApplyRig, what: str) -> None:
    position = rig.head
    for statement in LOST[what][0]:
        rig.write("a", statement)
    rig.sql(*LOST[what][1])
    (answer,) = rig.run(ItemKind.ADVANCE, "a", expected=position, after=rig.head)
    parked_for(answer, "table_mismatch")


@EITHER_PATH
@pytest.mark.parametrize("what", LOST)
def test_what_an_advance_or_upkeep_passed_by_parks_with_the_next_rows(rig: ApplyRig, what: str) -> None:
    """Neither has to look at the table's columns where the source's did not change."""
    position = rig.head
    for statement in LOST[what][0]:
        rig.write("a", statement)
    head = rig.sql(FOREIGN)
    (advance,) = rig.run(ItemKind.ADVANCE, "a", expected=position, after=head)
    if advance.outcome is Outcome.APPLIED:
        position = head
    else:
        parked_for(advance, "table_mismatch")
    rig.sql(*LOST[what][1], ROWS)
    (answer,) = rig.changes(position, "a")
    parked_for(answer, "table_mismatch")


@EITHER_PATH
@pytest.mark.parametrize("what", KEPT)
def test_what_keeps_every_value_is_the_owners_affair(rig: ApplyRig, what: str) -> None:
    position = rig.head
    for statement in KEPT[what][0]:
        rig.write("a", statement)
    rig.sql(*KEPT[what][1], ROWS)
    for _ in range(2):
        (answer,) = rig.changes(position, "a")
        assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
        assert rig.rows("a") == rig.expected("a")
        position = rig.head
        rig.sql(f"UPDATE {T} SET n = n + 1 WHERE id = 5")
        worker_state.forget()


@EITHER_PATH
def test_a_column_that_the_owner_added_too_early_is_added_again_once_it_is_gone(rig: ApplyRig) -> None:
    position = rig.head
    rig.write("a", f"ALTER TABLE {OWN} ADD COLUMN w INTEGER")
    rig.sql(f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 7", ROWS)
    (answer,) = rig.changes(position, "a")
    assert answer.error is not None
    assert 'ALTER TABLE "main"."t" DROP COLUMN "w";' in answer.error.hint
    rig.write("a", f"ALTER TABLE {OWN} DROP COLUMN w")
    (answer,) = rig.changes(position, "a")
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_a_reseed_ends_it(rig: ApplyRig) -> None:
    rig.write("a", f"ALTER TABLE {OWN} DROP COLUMN v")
    rig.add("a", generation=2, replace=True)
    rig.seed("a")
    position = rig.head
    rig.sql(ROWS)
    (answer,) = rig.changes(position, "a")
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_what_can_not_be_proven_any_more_is_accepted(rig: ApplyRig) -> None:
    """The stamps of before were expired by the owner of the lake: nothing tells whose change of a column it was."""
    position = rig.head
    rig.write("a", f"ALTER TABLE {OWN} DROP COLUMN v")
    rig.write("a", f"ALTER TABLE {OWN} ADD COLUMN v VARCHAR")
    rig.write("a", "CALL ducklake_expire_snapshots('dst', older_than => now() + INTERVAL 2 DAYS)")
    rig.sql(ROWS)
    (answer,) = rig.changes(position, "a")
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)


OTHERWISE = {
    "one added": ((f'ALTER TABLE {OWN} ADD COLUMN "m.🦆" INTEGER',), True),
    "one renamed": ((f"ALTER TABLE {OWN} RENAME COLUMN v TO mine",), True),
    "two swapped, and one added": (
        (
            f"ALTER TABLE {OWN} RENAME COLUMN v TO x",
            f"ALTER TABLE {OWN} RENAME COLUMN tenant TO v",
            f"ALTER TABLE {OWN} RENAME COLUMN x TO tenant",
            f"ALTER TABLE {OWN} ADD COLUMN mine INTEGER",
        ),
        True,
    ),
    "one widened": ((f"ALTER TABLE {OWN} ALTER COLUMN n SET DATA TYPE BIGINT",), False),
    "one in the middle dropped": ((f"ALTER TABLE {OWN} DROP COLUMN n",), False),
    "one in the middle dropped and added": (
        (f"ALTER TABLE {OWN} DROP COLUMN n", f"ALTER TABLE {OWN} ADD COLUMN n INTEGER"),
        False,
    ),
}
"""What the owner did, and whether statements mend it."""


@EITHER_PATH
@pytest.mark.parametrize("evolves", [False, True])
@pytest.mark.parametrize("what", OTHERWISE)
def test_a_table_that_is_another_one_parks_with_the_statements_that_mend_it(
    rig: ApplyRig, what: str, evolves: bool
) -> None:
    position = rig.head
    rig.write("a", *OTHERWISE[what][0])
    rig.sql(*[f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 5"] if evolves else [], ROWS)
    (answer,) = rig.changes(position, "a")
    parked_for(answer, "table_mismatch")
    assert answer.error is not None
    hint = answer.error.hint
    if not OTHERWISE[what][1]:
        assert hint.startswith("reseed the destination: no statement")
        return
    statements = hint.removeprefix("in the destination's lake: ").removesuffix(" then resume")
    rig.write("a", "USE dst", statements, "USE memory")
    (answer,) = rig.changes(position, "a")
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    assert rig.rows("a") == rig.expected("a")
