"""What a tenant may write into his own cursor and his own stamps: he owns the lake that they lie in."""

from __future__ import annotations

import json

import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, compare_all
from shared.contracts.messages import ADOPTABLE, ItemKind, Outcome, Progress
from shared.lake.cursor import SCHEMA, cursor_name
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_foreign_files import subject

CURSOR = f'dst."{SCHEMA}"."{cursor_name("p", "b")}"'
OUTSIZE = 3_000_000
"""Bytes of a text that no broker would take."""

FORGED = (
    "generation = 9223372036854775807", f"generation = {ADOPTABLE + 1}", "generation = 0", "generation = NULL",
    "position = 9223372036854775807", "position = -2", "position = NULL",
    "rows_applied = 9223372036854775807", "rows_applied = -1", "rows_applied = NULL",
    "item = NULL", f"item = repeat('i', {OUTSIZE})", "routing_value = NULL", "routing_value = 'hex:zz'",
    f"routing_value = repeat('r', {OUTSIZE})", "source_lake = NULL", "source_lake = source_lake || '@garbage'",
    f"source_lake = repeat('s', {OUTSIZE})", "source_table_uuid = NULL", f"source_table_uuid = repeat('u', {OUTSIZE})",
)  # fmt: skip

REASONS = ("cursor_damaged", "routing_value_changed", "source_recreated", "source_moved")

STAMPS = (
    "no json", "[]", "null", "{}", '"text"', "[" * 100_000,
    '{"pipeline": "p", "destination": "b", "kind": "drop"}',
    '{"pipeline": "p", "destination": "b", "kind": "drop", "generation": null}',
    '{"pipeline": "p", "destination": "b", "kind": "drop", "generation": "9"}',
    json.dumps({"pipeline": "p", "destination": "b", "kind": "drop", "generation": 10**30, "after": 0, "through": 0,
                "item": "i", "deleted": 0, "inserted": 0}),
    json.dumps({"pipeline": "p", "destination": "b", "kind": "seed", "generation": 1, "through": "x"}),
)  # fmt: skip


@pytest.fixture
def played(make_rig: MakeRig) -> ApplyRig:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b'][1 + i % 2], 'v' || i FROM range(20) r(i)",
    )
    for name in ("a", "b"):
        rig.add(name)
    assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED] * 2
    return rig


def require_readable(said: Progress) -> None:
    """That those who listen can take it in: what they can't is a dead letter, and its destination stands for ever."""
    message = said.to_bytes()
    assert len(message) < 100_000
    assert Progress.from_bytes(message) == said


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_cursor_parks_its_tenant_and_is_told_of(played: ApplyRig, forged: str) -> None:
    rig, before = played, played.head
    rig.forget()
    rig.write("b", f"UPDATE {CURSOR} SET {forged}")
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 6")
    honest, hostile = rig.changes(before)
    assert honest.outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")
    for kind in (None, ItemKind.PROBE, ItemKind.ADVANCE, ItemKind.UPKEEP, ItemKind.SEED, ItemKind.DROP):
        if kind is not None:
            (hostile,) = rig.run(kind, "b", expected=before, after=before)
        require_readable(hostile)
        assert hostile.outcome is not Outcome.FAILED, (kind, hostile.error)
        if hostile.outcome is Outcome.PARKED:
            assert hostile.error is not None
            assert hostile.error.type in REASONS, kind
        elif kind is None:
            assert rig.rows("b") == rig.expected("b"), "what is overwritten in passing does no harm"


def test_a_cursor_of_other_columns_parks_its_tenant(played: ApplyRig) -> None:
    rig, before = played, played.head
    rig.forget()
    rig.write("b", f"ALTER TABLE {CURSOR} DROP COLUMN item")
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 6")
    honest, hostile = rig.changes(before)
    assert honest.outcome is Outcome.APPLIED
    assert (hostile.outcome, hostile.error and hostile.error.type) == (Outcome.PARKED, "cursor_damaged")
    (probed,) = rig.run(ItemKind.PROBE, "b", expected=before, after=before)
    assert (probed.outcome, probed.error and probed.error.type) == (Outcome.PARKED, "cursor_damaged")


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
@pytest.mark.parametrize("stamp", STAMPS, ids=range(len(STAMPS)))
def test_a_forged_stamp_is_none(played: ApplyRig, stamp: str) -> None:
    """Of the snapshot that took the cursor away, of the one that it says it is of, and of a seed."""
    rig, before = played, played.head
    rig.forget()
    said = stamp.replace("'", "''")
    rig.write("b", f"BEGIN; UPDATE {CURSOR} SET item = 'forged';"
                   f"CALL dst.set_commit_message('viaduck', 'seed', extra_info => '{said}'); COMMIT")  # fmt: skip
    (probed,) = rig.run(ItemKind.PROBE, "b", expected=before, after=before)
    assert probed.outcome is Outcome.ALREADY_APPLIED, probed.error
    verdicts = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject(rig, "b"), subject(rig, "a")])
    assert [verdict.finding for verdict in verdicts] == [ComparisonResult.EQUAL] * 2
    rig.write("b", f"BEGIN; DROP TABLE {CURSOR}; DROP TABLE dst.main.t;"
                   f"CALL dst.set_commit_message('viaduck', 'drop', extra_info => '{said}'); COMMIT")  # fmt: skip
    rig.forget()
    (seeded,) = rig.seed("b")
    assert seeded.outcome is Outcome.APPLIED, seeded.error
    assert rig.rows("b") == rig.expected("b")
