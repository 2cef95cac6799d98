"""Keys that are hostile are found in files by what is remembered of them and by a scan alike, where Viaduck commits
directly: with NULs, quotes, control characters, and texts that begin alike for longer than any bound is kept."""

from __future__ import annotations

import random

import pytest

from shared.config.model import Routing
from shared.contracts.messages import CommitPath, Outcome, Progress
from shared.lake.direct import positions
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_hostile_values import TEXTS, differing

FILES = positions.FEW_FILES + 2

ALIKE = ("x", "x\x00", "x\x00y\x00", "x\x00z", "X\x00y", "\x00\x00", "", " ", "x ", "\x01", "\x1f\x7f", "'", "''", '"')

LONG = tuple(f"{'ab' * 5_000}{end}" for end in ("", "\x00", "'", "a", "b"))

KEYS = (*TEXTS.values(), *ALIKE, *LONG, *(f"k{number}" for number in range(20)))

SOME = "encode(k) IN (SELECT unnest(?::BLOB[]))"
"""DuckLake itself would not find such keys (H16)."""


@pytest.fixture(params=["remembered", "scanned", "too large"])
def rig(request: pytest.FixtureRequest, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> ApplyRig:
    """A tenant with a row, whose files are remembered, or are too many or too large for that."""
    if request.param != "remembered":
        monkeypatch.setattr(positions, "SMALL_FILE_ROWS" if request.param == "scanned" else "KEYS_BYTES", 0)
    made = make_rig(routing=Routing(field="tenant", key_columns=("k",)))
    made.sql(
        "CREATE TABLE src.main.t (k VARCHAR, tenant VARCHAR, v VARCHAR)",
        "CALL src.set_option('data_inlining_row_limit', 0)",
        "INSERT INTO src.main.t VALUES ('first', 'a', 'v'), ('last', 'b', 'v')",
    )
    made.add("a")
    made.seed()
    return made


def changed(rig: ApplyRig, statement: str, keys: tuple[str, ...]) -> Progress:
    before = rig.head
    is_insert = statement.startswith("INSERT")
    rig.con.execute(statement, [list(keys) if is_insert else [key.encode() for key in keys]])
    (progress,) = rig.changes(before, "a")
    return progress


def direct(progress: Progress) -> None:
    assert progress.outcome is Outcome.APPLIED, progress.error
    assert progress.commit is CommitPath.DIRECT, progress.commit_reason


@pytest.mark.parametrize("make_lake", ["sqlite", "postgres"], indirect=True)
def test_hostile_keys_are_updated_and_deleted_wherever_they_are_in_files(rig: ApplyRig) -> None:
    """They are in more files than are all looked into."""
    for number in range(FILES):
        direct(changed(rig, "INSERT INTO src.main.t SELECT unnest(?::VARCHAR[]), 'a', 'v'", KEYS[number::FILES]))
    rng = random.Random(len(KEYS))
    for statement in (
        f"UPDATE src.main.t SET v = 'new' WHERE {SOME}",
        f"DELETE FROM src.main.t WHERE {SOME}",
        f"UPDATE src.main.t SET tenant = 'b' WHERE {SOME}",
        f"UPDATE src.main.t SET v = 'newer' WHERE {SOME}",
    ):
        direct(changed(rig, statement, tuple(rng.sample(KEYS, len(KEYS) // 3))))
        assert differing(rig) == []
    left = {key for (key, *_) in rig.rows("a")}
    for key in [key for key in (*ALIKE, *LONG) if key in left][::3]:
        direct(changed(rig, f"DELETE FROM src.main.t WHERE {SOME}", (key,)))
        assert differing(rig) == []
