"""What a destination can't take parks it, at once and by its reason, and so does a cursor that is gone."""

from __future__ import annotations

import pytest

from shared.contracts.messages import Outcome
from shared.lake.cursor import cursor_name
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_identity import parked_for


def test_a_negative_interval_parks_instead_of_failing_for_ever(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(20) r(i)",
        "ALTER TABLE src.main.t ADD COLUMN took INTERVAL",
    )
    rig.add("a")
    rig.seed()
    position, before = rig.head, rig.rows("a")
    rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 'v', INTERVAL '-1 day')")
    (answer,) = rig.changes(position)
    assert "negative intervals" in parked_for(answer, "value_refused")
    assert rig.rows("a") == before


@pytest.mark.parametrize("word", ["{AUTHOR}", "{COMMIT_MESSAGE}"])
def test_a_text_that_breaks_the_commit_parks_its_tenant_alone(rig: ApplyRig, word: str) -> None:
    rig.seed()
    position = rig.head
    rig.sql(
        f"INSERT INTO src.main.t SELECT 100 + i, 'a', '{word}' FROM range(30) r(i)",
        "UPDATE src.main.t SET v = 'new' WHERE id = 3",
    )
    for_a, for_b = rig.changes(position)
    assert for_a.outcome is Outcome.PARKED, for_a
    assert for_b.outcome is Outcome.APPLIED
    assert rig.rows("b") == rig.expected("b")


def test_a_cursor_whose_table_is_gone_parks_its_tenant_alone(rig: ApplyRig) -> None:
    rig.seed()
    position, before = rig.head, rig.rows("a")
    rig.write("a", f"DROP TABLE dst._viaduck.{cursor_name('p', 'a')}")
    rig.sql("UPDATE src.main.t SET v = 'new' WHERE id IN (2, 3)")
    for_a, for_b = rig.changes(position)
    parked_for(for_a, "cursor_damaged")
    assert for_b.outcome is Outcome.APPLIED
    assert rig.rows("a") == before
    (again,) = rig.seed("a")
    parked_for(again, "table_not_empty")
