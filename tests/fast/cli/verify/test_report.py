"""What `viaduck verify` says, to people and to scripts."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from services.cli.verify.comparison import ComparisonResult, Verdict
from services.cli.verify.differences import Difference, Differences
from services.cli.verify.past_proof import PastProof, StampedPosition
from services.cli.verify.report import FULL_TABLE, Report
from shared.contracts.messages import Problem

EQUAL = Verdict("good", ComparisonResult.EQUAL, 7, 9, 100)
CHANGED = Difference({"id": "4"}, {"v": "1"}, {"v": None})
MISSING = Difference({"id": "5"}, {"id": "5", "v": "1"})
DIFFERENT = Verdict("bad", ComparisonResult.DIFFERENT, 7, 7, 99, Differences(1, 0, 1, (CHANGED, MISSING)))
FAILED = Verdict(
    "gone",
    ComparisonResult.FAILED,
    problem=Problem(type="lake_missing", message="no such lake", hint="make it", retryable=False),
)
PARKED = Problem(type="key_not_unique", message="two rows share a key", hint="remove one", retryable=False)


def printed(report: Report) -> str:
    console = Console(file=io.StringIO(), width=100)
    report.print(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_equal_is_said_in_one_line() -> None:
    report = Report("events", [EQUAL], {}, 1.25)
    assert report.all_equal
    assert "1 of 1 destinations of events proven equal, 100 rows in 1.2 s" in printed(report)


def test_a_difference_is_shown_by_its_key_with_both_values() -> None:
    text = printed(Report("events", [EQUAL, DIFFERENT], {}, 1.0))
    assert "bad: row id = 4 has v = NULL instead of v = 1" in text
    assert "bad: missing row id = 5" in text
    assert "1 missing, 1 changed" in text


def test_what_a_row_holds_does_not_steer_a_terminal() -> None:
    hostile = Difference({"id": "\x1b[2J"}, {"v": "\u202e"}, {"v": "\x07"})
    text = printed(Report("events", [replace(DIFFERENT, differences=Differences(0, 0, 1, (hostile,)))], {}, 1.0))
    assert "row id = \\x1b[2J has v = \\x07 instead of v = \\u202e" in text


def test_what_could_not_be_read_says_why_and_what_to_do() -> None:
    report = Report("events", [FAILED], {}, 1.0)
    assert not report.all_equal
    assert "gone: failed: no such lake" in printed(report)
    assert "hint: make it" in printed(report)
    assert "0 of 1 destinations of events proven equal, 1 could not be compared" in printed(report)


def test_what_a_proof_leaves_open_is_said_of_those_that_are_equal_too() -> None:
    report = Report("events", [replace(EQUAL, note="behind maintenance")], {}, 1.0)
    assert report.all_equal
    assert "good: behind maintenance" in printed(report)


def test_a_parked_destination_is_not_fine_even_if_its_rows_are() -> None:
    report = Report("events", [EQUAL], {"good": PARKED}, 1.0)
    assert not report.all_equal
    assert "good: parked: two rows share a key" in printed(report)


def test_of_many_destinations_only_those_that_are_not_equal_are_listed() -> None:
    many = [Verdict(f"tenant{number}", ComparisonResult.EQUAL, 7, 7, 1) for number in range(FULL_TABLE)]
    text = printed(Report("events", [*many, DIFFERENT], {}, 1.0))
    assert "tenant1" not in text
    assert "bad" in text


def test_scripts_get_one_object_for_each_destination() -> None:
    good, bad, gone = map(json.loads, Report("events", [EQUAL, DIFFERENT, FAILED], {"good": PARKED}, 1.0).to_json())
    assert (good["result"], good["parked"], good["error"]["type"]) == ("equal", True, "key_not_unique")
    assert (bad["missing"], bad["extra"], bad["changed"]) == (1, 0, 1)
    assert bad["differences"][0] == {
        "kind": "changed",
        "key": {"id": "4"},
        "expected": {"v": "1"},
        "found": {"v": None},
    }
    assert gone["error"]["message"] == "no such lake"


def test_retained_snapshots_are_counted_and_a_different_one_is_shown() -> None:
    past = PastProof(proven=340, unproven=10, note="expired").with_different(StampedPosition(42, 15), "1 rows missing")
    report = Report("events", [replace(EQUAL, finding=ComparisonResult.DIFFERENT, past=past)], {}, 1.0)
    text = printed(report)
    assert "340 retained snapshots proven, 10 not to be proven any more, 1 different" in " ".join(text.split())
    assert "good: snapshot 42, position 15: 1 rows missing" in text
    (line,) = map(json.loads, report.to_json())
    assert line["snapshots"] == {
        "proven": 340, "unproven": 10, "different": 1, "note": "expired",
        "differences": [{"snapshot": 42, "position": 15, "message": "1 rows missing"}],
    }  # fmt: skip
    assert [each["snapshots"] for each in map(json.loads, Report("events", [EQUAL], {}, 1.0).to_json())] == [None]
