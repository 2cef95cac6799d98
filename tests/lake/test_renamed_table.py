"""A source's table that is renamed stays the same table, whichever of its names the configuration has."""

from __future__ import annotations

import pytest

from shared.config.model import Routing
from shared.contracts.messages import ItemKind
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.ten_rows import Rows, applied, seeded, slice_of
from tests.lake.test_identity import parked_for

EITHER_NAME = pytest.mark.parametrize("configured", ["t", "u"])


@pytest.fixture
def routing() -> Routing:
    return Routing(field="tenant", key_columns=("id",))


@pytest.fixture
def rig(make_rig: MakeRig, routing: Routing) -> ApplyRig:
    return seeded(make_rig, routing)


def slice_now(rig: ApplyRig, table: str = "u") -> Rows:
    return slice_of(rig, table, "tenant")


@EITHER_NAME
def test_changes_before_and_after_it_are_of_one_range(rig: ApplyRig, configured: str) -> None:
    position, rig.table = rig.head, configured
    rig.sql(
        "DELETE FROM src.main.t WHERE id = 2",
        "ALTER TABLE src.main.t RENAME TO u",
        "UPDATE src.main.u SET v = -1 WHERE id IN (4, 5)",
    )
    applied(rig.changes(position))
    assert rig.rows("a") == slice_now(rig)
    position = rig.head
    rig.sql("ALTER TABLE src.main.u RENAME COLUMN v TO w", "INSERT INTO src.main.u VALUES (100, 'a', 1)")
    applied(rig.changes(position))
    assert rig.rows("a") == slice_now(rig)


@EITHER_NAME
def test_a_range_or_a_life_that_ends_before_it_is_read_by_the_name_of_then(rig: ApplyRig, configured: str) -> None:
    position, rig.table = rig.head, configured
    end = rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1)")
    rows = slice_now(rig, "t")
    rig.sql("ALTER TABLE src.main.t RENAME TO u", "INSERT INTO src.main.u VALUES (101, 'a', 1)")
    applied(rig.changes(position, pinned=True, through=end))
    assert rig.rows("a") == rows
    applied(rig.changes(end, pinned=True))
    assert rig.rows("a") == slice_now(rig)
    rig.add("a", generation=2)
    applied(rig.seed(pinned=True, through=end))
    assert rig.rows("a") == rows


@EITHER_NAME
@pytest.mark.parametrize("routing", [Routing(field="tenant")])
def test_appended_rows_of_each_run_are_read_by_its_name(rig: ApplyRig, configured: str) -> None:
    """A merge between them divides the range."""
    position, rig.table = rig.head, configured
    rig.sql(
        "INSERT INTO src.main.t VALUES (100, 'a', 1)",
        "CALL ducklake_merge_adjacent_files('src')",
        "ALTER TABLE src.main.t RENAME TO u",
        "INSERT INTO src.main.u VALUES (101, 'a', 1)",
    )
    applied(rig.changes(position, pinned=True))
    assert rig.rows("a") == slice_now(rig)


def test_another_table_of_the_old_name_is_another_table(rig: ApplyRig) -> None:
    position = rig.head
    rig.sql("ALTER TABLE src.main.t RENAME TO u", "CREATE TABLE src.main.t AS SELECT * FROM src.main.u")
    before = rig.rows("a")
    (answer,) = rig.run(ItemKind.PROBE, "a", expected=position)
    parked_for(answer, "source_recreated")
    assert rig.rows("a") == before
