"""What other programs find in a column after it became wider: DuckLake's next inserts leave wrong bounds (H27)."""

from __future__ import annotations

import duckdb
import pytest

from services.applier.apply import transaction
from services.applier.apply.maintenance import catalog_rows
from shared.contracts.messages import CommitPath, Destination, ItemKind, Outcome
from shared.lake.attached.pool import OpenLake
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig
from tests.lake.test_evolution import alone
from tests.lake.test_layout import stock_count
from tests.lake.test_upkeep import keep_up

T = "src.main.t"

WIDER = (
    f"ALTER TABLE {T} ALTER COLUMN n SET DATA TYPE BIGINT",
    f"ALTER TABLE {T} ALTER COLUMN d SET DATA TYPE DECIMAL(18,2)",
    f"ALTER TABLE {T} ALTER COLUMN s SET DATA TYPE STRUCT(a BIGINT, b VARCHAR)",
)
FORMER = ("n = -7", "d = -7", "s.a = -7", "n = 900", "s.a = 900")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A tenant whose rows hold least and greatest values that no later row has."""
    made = make_rig()
    made.sql(
        f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, n INTEGER, d DECIMAL(10,2), s STRUCT(a INTEGER, b VARCHAR))",
        f"INSERT INTO {T} SELECT i, 'a', v, v, {{'a': v, 'b': 'x'}} FROM (VALUES (1, -7), (2, 900), (3, 5)) x(i, v)",
    )
    made.add("a")
    made.seed()
    return made


def one_more(rig: ApplyRig, number: int) -> CommitPath | None:
    position = rig.head
    rig.sql(f"INSERT INTO {T} VALUES ({number}, 'a', {number}, {number}, {{'a': {number}, 'b': 'y'}})")
    (answer,) = rig.changes(position)
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    return answer.commit


def widen(rig: ApplyRig, *, with_rows: bool) -> None:
    position = rig.head
    if with_rows:
        rig.sql("BEGIN", *WIDER, f"INSERT INTO {T} VALUES (9, 'a', 9, 9, {{'a': 9, 'b': 'y'}})", "COMMIT")
        (answer,) = rig.changes(position)
    else:
        rig.sql(*WIDER)
        alone(rig)
        (answer,) = rig.run(ItemKind.ADVANCE, expected=position, after=rig.head)
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)


def assert_found(rig: ApplyRig, first: int) -> None:
    """At the newest snapshot and at each since ``first``, of which none had lost the former rows."""
    for condition in FORMER:
        assert stock_count(rig, condition) == 1, condition
        for snapshot in range(first, rig.commits("a") + 1):
            assert stock_count(rig, condition, f"AT (VERSION => {snapshot})") == 1, (condition, snapshot)


@EITHER_PATH
@pytest.mark.parametrize("with_rows", [True, False])
def test_former_rows_are_found_whatever_is_inserted_after_that(rig: ApplyRig, commit: str, with_rows: bool) -> None:
    seeded = rig.commits("a")
    widen(rig, with_rows=with_rows)
    paths = {one_more(rig, number) for number in (10, 11, 12)}
    assert paths == {CommitPath.DIRECT if commit == "auto" else CommitPath.EXTENSION}
    assert_found(rig, seeded)


def test_former_rows_are_found_after_upkeep(rig: ApplyRig) -> None:
    """Upkeep inserts the rows that are left of worn files."""
    for number in (20, 21):
        one_more(rig, number)
    position = rig.head
    rig.sql(f"DELETE FROM {T} WHERE id = 20")
    rig.changes(position)
    seeded = rig.commits("a")
    widen(rig, with_rows=True)
    for number in (10, 11):
        keep_up(rig)
        one_more(rig, number)
        position = rig.head
        rig.sql(f"DELETE FROM {T} WHERE id = {number}")
        rig.changes(position)
    keep_up(rig)
    assert_found(rig, seeded)


def test_bounds_that_could_not_be_deleted_after_a_commit_go_with_the_next_apply(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item is answered for by what was committed."""
    seeded, forgets = rig.commits("a"), catalog_rows.forget_bounds

    def refused(con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> None:
        if lake.catalog.doubtful_bounds(destination.schema_name, destination.table):
            raise duckdb.IOException("the catalog's server went away")
        forgets(con, lake, destination)

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "forget_bounds", refused)
        position = rig.head
        rig.sql("BEGIN", *WIDER, f"INSERT INTO {T} VALUES (9, 'a', 9, 9, {{'a': 9, 'b': 'y'}})", "COMMIT")
        (answer,) = rig.changes(position)
    assert (answer.outcome, answer.position) == (Outcome.APPLIED, rig.head)
    for number in (10, 11):
        one_more(rig, number)
    assert_found(rig, seeded)


def test_wrong_bounds_of_an_earlier_version_go_with_the_next_apply(rig: ApplyRig) -> None:
    """Its direct commits took the bounds of the first file that came after a column was wider."""
    widen(rig, with_rows=True)
    rig.write(
        "a",
        "INSERT INTO __ducklake_metadata_dst.ducklake_table_column_stats (table_id, column_id, contains_null,"
        " contains_nan, min_value, max_value) SELECT table_id, column_id, false, false, '9', '9'"
        " FROM __ducklake_metadata_dst.ducklake_column"
        " WHERE end_snapshot IS NULL AND column_name = 'n' AND column_type = 'int64'",
    )
    assert stock_count(rig, "n = -7") == 0
    one_more(rig, 10)
    assert stock_count(rig, "n = -7") == 1
