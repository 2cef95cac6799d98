"""Which snapshots are expired, as a function of values; and the options that say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer
from typer.testing import CliRunner

from services.cli.commands.verify_options import past
from services.cli.expire.plan import Hold, Plan, batches, first_hold
from services.cli.main import app
from services.cli.verify.comparison import Past
from shared.contracts.upkeep import duration_s
from shared.lake.upkeep.retained import LakeSnapshot, Retained

START = datetime(2026, 1, 1, tzinfo=UTC)
SPAN = Retained("a lake", 120, START, 9_000, START + timedelta(days=2))


def snapshots(*ids: int) -> list[LakeSnapshot]:
    return [LakeSnapshot(each, START + timedelta(seconds=each)) for each in ids]


def test_the_oldest_hold_decides_and_the_head_is_always_one() -> None:
    assert first_hold(SPAN, [Hold(812, "a"), None, Hold(900, "b")]) == Hold(812, "a")
    assert first_hold(SPAN, [None]) == Hold(9_000, "it is the head")


def test_a_limited_plan_frees_only_what_its_own_snapshots_showed() -> None:
    assert Plan(SPAN, Hold(812, "a"), snapshots(120, 121)).oldest_kept == 812
    assert Plan(SPAN, Hold(812, "a"), snapshots(120, 121), is_limited=True).oldest_kept == 122


def test_snapshots_go_in_parts_the_oldest_first() -> None:
    assert [[each.id for each in part] for part in batches(snapshots(1, 2, 3, 4, 5), 2)] == [[1, 2], [3, 4], [5]]
    assert list(batches([], 2)) == []


@pytest.mark.parametrize(
    ("text", "found"), [("90s", 90.0), ("5m", 300.0), ("36h", 129_600.0), ("0.5d", 43_200.0), ("2w", 1_209_600.0)]
)
def test_durations(text: str, found: float) -> None:
    assert duration_s(text) == found


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-7d", "7y", "1e3d", "7d12h", "\u0667d", "999999d", "nand"])
def test_what_is_no_duration_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="such as 7d"):
        duration_s(text)


def test_the_moment_of_a_proof_needs_an_offset_and_its_option() -> None:
    assert past(all_snapshots=False, since=None) is None
    assert past(all_snapshots=True, since="2026-01-01T00:00:00Z") == Past(START)
    for all_snapshots, since in ((False, "2026-01-01T00:00:00Z"), (True, "2026-01-01T00:00:00"), (True, "in March")):
        with pytest.raises(typer.BadParameter):
            past(all_snapshots=all_snapshots, since=since)


def test_options_that_exclude_each_other_or_are_none_end_with_2() -> None:
    for words in (
        ["--older-than", "7d", "--keep", "5"], ["--keep", "0"], ["--limit", "0"], ["--floor", "-1"],
        ["--clean-older-than", "soon"],
    ):  # fmt: skip
        assert CliRunner().invoke(app, ["source", "expire", "-c", "nowhere.yaml", *words]).exit_code == 2, words
