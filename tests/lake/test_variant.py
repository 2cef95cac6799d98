"""A VARIANT column, which nothing carries from one DuckDB instance to another, is refused by its name at any time."""

from __future__ import annotations

import pytest

from shared.contracts.messages import Outcome
from shared.lake.types import not_carried
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_identity import parked_for


@pytest.mark.parametrize("declared", ["VARIANT", "VARIANT[]", "STRUCT(a VARIANT)"])
def test_a_variant_column_parks_by_its_name(make_rig: MakeRig, declared: str) -> None:
    rig = make_rig()
    rig.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v {declared})")
    rig.add("a")
    (answer,) = rig.seed()
    assert "the column v is " in parked_for(answer, "schema_change")


def test_a_variant_column_that_comes_later_parks_by_its_name(rig: ApplyRig) -> None:
    rig.seed()
    position, before = rig.head, rig.rows("a")
    rig.sql(
        "ALTER TABLE src.main.t ADD COLUMN later VARIANT", "INSERT INTO src.main.t VALUES (1000, 'a', 'x', 1::VARIANT)"
    )
    (answer,) = rig.changes(position, "a")
    assert "the column later is VARIANT" in parked_for(answer, "schema_change")
    assert rig.rows("a") == before


def test_a_part_of_that_name_is_none(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v STRUCT(variant VARCHAR, hugeint INTEGER))",
        "INSERT INTO src.main.t VALUES (1, 'a', {'variant': 'red', 'hugeint': 1})",
    )
    rig.add("a")
    (answer,) = rig.seed()
    assert answer.outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")
    assert not_carried("v", 'STRUCT("variant" VARCHAR, "a ""VARIANT" DATE)') is None
