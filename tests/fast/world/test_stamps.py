"""A stamp says by which path its commit came, or it is the extension's."""

from __future__ import annotations

import json

import pytest

from tests.world.stamps import BadStamp, Commit, parse

TOLD = {
    "viaduck": 1, "pipeline": "events", "destination": "a", "kind": "changes", "generation": 1, "after": 3,
    "through": 5, "item": "3f", "token": "91", "deleted": 0, "inserted": 1,
}  # fmt: skip


def stamped(**more: object) -> Commit:
    return Commit(12, "inserted_into_table:1", "viaduck", "changes (3, 5] of events", json.dumps(TOLD | more))


def test_a_stamp_that_names_no_path_is_the_extensions() -> None:
    stamp = parse(stamped())
    assert (stamp.snapshot, stamp.path, stamp.looked) == (12, "extension", None)


def test_a_direct_commit_may_tell_its_look() -> None:
    stamp = parse(stamped(commit="direct", looked=11))
    assert (stamp.snapshot, stamp.path, stamp.looked) == (12, "direct", 11)
    assert parse(stamped(commit="direct")).looked is None


@pytest.mark.parametrize(
    "wrong", [{"commit": "another"}, {"looked": 11}, {"commit": "direct", "looked": "11"}, {"commit": None}]
)
def test_a_path_that_does_not_go_with_its_look_is_no_stamp(wrong: dict[str, object]) -> None:
    with pytest.raises(BadStamp, match="commit is"):
        parse(stamped(**wrong))
