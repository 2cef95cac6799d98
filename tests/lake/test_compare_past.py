"""`viaduck verify --all-snapshots`: every retained snapshot is proven, different, or not to be proven any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, Past, Subject, Verdict, compare_all
from services.cli.verify.past_proof import COMPACTED, PastProof
from shared.contracts.messages import ItemKind, SeedMode
from tests.lake.rig import ApplyRig

STAMP = '{{"viaduck": 1, "pipeline": "p", "destination": "a", "kind": "changes", "generation": 1, "after": 2, "through": {}, "item": "i", "token": "t", "deleted": 0, "inserted": 0}}'  # noqa: E501


def verdict(rig: ApplyRig, since: datetime | None = None) -> Verdict:
    origin = ComparedSource(rig.source, "main", "t", rig.routing)
    subject = Subject("p", "a", "a", rig.lake("a"), "main", "t", SeedMode.SCAN, Past(since))
    (found,) = compare_all(origin, [subject])
    assert found.past is not None
    return found


def proof(found: Verdict) -> tuple[int, int, int]:
    assert found.past is not None
    return found.past.proven, found.past.unproven, found.past.different


@pytest.fixture
def moved(rig: ApplyRig) -> ApplyRig:
    """A seed and three changes of ``a``, of rows that stay in the catalog and of rows that go to files."""
    rig.seed()
    position = rig.head
    for statement in (
        "INSERT INTO src.main.t SELECT 500 + i, 'a', 'x' FROM range(20) r(i)",
        "UPDATE src.main.t SET v = 'y' WHERE id IN (2, 502)",
        "DELETE FROM src.main.t WHERE id IN (4, 504)",
    ):
        after, position = position, rig.sql(statement)
        rig.changes(after, "a")
    return rig


def test_every_retained_snapshot_is_proven_where_the_source_has_its_history(moved: ApplyRig) -> None:
    moved.sql("INSERT INTO src.main.t VALUES (900, 'a', 'later')")
    found = verdict(moved)
    assert (found.finding, proof(found)) == (ComparisonResult.EQUAL, (4, 0, 0))


def test_a_snapshot_that_another_program_wrote_wrong_is_told_though_the_newest_is_right(moved: ApplyRig) -> None:
    moved.write(
        "a", "BEGIN", "DELETE FROM dst.main.t WHERE id = 8",
        f"CALL dst.set_commit_message('viaduck', 'x', extra_info => '{STAMP.format(moved.head)}')", "COMMIT",
        "INSERT INTO dst.main.t VALUES (8, 'a', 'v8')",
    )  # fmt: skip
    found = verdict(moved)
    assert (found.finding, proof(found)) == (ComparisonResult.DIFFERENT, (4, 0, 1))
    assert found.past is not None
    ((stamped, said),) = found.past.shown
    assert (stamped.position, said) == (moved.head, "1 rows missing, 0 extra, 0 changed")


def test_what_the_source_has_expired_is_counted_and_never_equal(moved: ApplyRig) -> None:
    moved.sql(f"CALL ducklake_expire_snapshots('src', versions => {list(range(moved.head))})")
    found = verdict(moved)
    assert (found.finding, proof(found)) == (ComparisonResult.EQUAL, (1, 3, 0))
    assert found.past is not None
    assert "no longer keeps" in found.past.note


def test_behind_a_compaction_nothing_is_proven_and_nothing_different(moved: ApplyRig) -> None:
    head = moved.head
    moved.run(ItemKind.UPKEEP, "a", expected=head, after=head)
    found = verdict(moved)
    assert (found.finding, found.past) == (ComparisonResult.EQUAL, PastProof(unproven=4, note=COMPACTED))


def test_since_leaves_older_ones_out(moved: ApplyRig) -> None:
    assert proof(verdict(moved, datetime.now(UTC) + timedelta(days=1))) == (0, 0, 0)
    assert proof(verdict(moved, datetime.now(UTC) - timedelta(days=1))) == (4, 0, 0)
