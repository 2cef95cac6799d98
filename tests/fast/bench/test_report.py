"""What the benchmark makes of figures: targets that are met or missed, files, and the page of figures."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench.cases.small import Followed, until_job_ms
from bench.outcome import LIMIT, VIADUCK, Check, Outcome, Size, at_least, at_most, nothing, ratio
from bench.performance import BEGIN, END, newest_of_each, regenerate, replaced
from bench.report import outcomes_table
from bench.results import Kept, keep, kept
from bench.svg import BAD, GOOD, Bar, bar_chart
from bench.workload import MANY, SPARSE, of_tenants

PAGE = Path(__file__).resolve().parents[3] / "docs/explanation/performance.md"
MACHINE = {"cpus": 2, "memory_gb": 24.6, "system": "Linux", "python": "3.11.2", "java": 17, "duckdb": "1.5.5"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def outcome(case: str = "dense", size: Size = Size.QUICK, found: float = 0.5) -> Outcome:
    beside = {VIADUCK: [found, 9.0, 0.1], LIMIT: [1.0]}
    return Outcome(case, "a case", "postgres", size, 2, (ratio("changes", beside, 0.75),), {"beside": beside}, 3.0)


def result(outcome: Outcome, hours: int = 0) -> Kept:
    return Kept(Path(f"{outcome.case}-{hours}.json"), NOON + timedelta(hours=hours), MACHINE, outcome)


def test_a_target_is_met_up_to_its_limit_and_missed_beyond_it() -> None:
    assert [at_most("x", found, 2.0).met for found in (1.9, 2.0, 2.1)] == [True, True, False]
    assert [at_least("x", found, 2.0).met for found in (1.9, 2.0, 2.1)] == [False, True, True]
    assert [nothing("x", found).met for found in (0, 1)] == [True, False]


def test_how_much_of_a_target_is_used_exceeds_one_where_it_is_missed() -> None:
    assert at_most("x", 3.0, 2.0).strain == 1.5
    assert at_least("x", 1.0, 2.0).strain == 2.0
    assert at_least("x", 0.0, 2.0).strain is None
    assert nothing("x", 1).strain is None


def test_figures_are_shown_with_their_unit_and_without_idle_digits() -> None:
    assert at_most("x", 412.0, 1_500.0, "MB", 0) == Check("x", "≤ 1,500 MB", "412 MB", True, 0.275)
    assert at_most("x", 0.5, 2.0, "s").found == "0.5 s"


def test_a_ratio_is_that_of_the_medians() -> None:
    check = ratio("x", {VIADUCK: [1.0, 2.0, 90.0], LIMIT: [4.0]}, 0.75)
    assert (check.met, check.found, check.strain) == (True, "0.50 x (2.00 s to 4.00 s)", 0.667)


def test_an_outcome_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    made = outcome()
    file = keep(made, MACHINE, tmp_path)
    (tmp_path / "control-1.json").write_text(json.dumps({"control": {}}))
    assert [(each.file, each.machine, each.outcome) for each in kept(tmp_path)] == [(file, MACHINE, made)]


def test_the_newest_result_of_a_case_counts_and_a_full_one_before_a_quick_one() -> None:
    full, quick, later = outcome(size=Size.FULL), outcome(), outcome(size=Size.FULL, found=0.7)
    assert [each.outcome for each in newest_of_each([result(full), result(quick, 1)])] == [full]
    assert [each.outcome for each in newest_of_each([result(full), result(later, 1)])] == [later]
    assert [each.outcome for each in newest_of_each([result(quick), result(full, 1)])] == [full]


def test_results_stand_in_the_order_of_the_cases_and_strangers_last() -> None:
    found = newest_of_each([result(outcome(name)) for name in ("original-dense", "wide", "many", "dense")])
    assert [each.outcome.case for each in found] == ["dense", "many", "wide", "original-dense"]


def test_the_page_is_made_of_the_results_between_its_marks_only(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    page = tmp_path / "explanation" / "performance.md"
    page.parent.mkdir()
    page.write_text(f"by hand\n{BEGIN}\nold\n{END}\nby hand, too\n")
    files = regenerate([result(outcome()), result(outcome("many", found=0.9))], tmp_path)
    text = page.read_text()
    assert text.startswith("by hand\n")
    assert text.endswith("\nby hand, too\n")
    assert "old" not in text
    assert "2 targets, 1 met, 1 missed." in text
    assert "| dense | changes | ≤ 0.75 x the single process | 0.50 x (0.50 s to 1.00 s) | met |" in text
    assert "| many | changes | ≤ 0.75 x the single process | 0.90 x (0.90 s to 1.00 s) | **missed** |" in text
    assert "* All: 2 cores, 25 GB, Linux, Python 3.11.2, Java 17, DuckDB 1.5.5." in text
    assert [file.name for file in files] == ["performance.md", "targets.svg", "beside.svg"]
    for file in files[1:]:
        assert f"(../images/{file.name})" in text
        ElementTree.fromstring(file.read_text())


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        replaced(f"{END} the wrong way round {BEGIN}", "x")


def test_the_page_of_this_project_has_the_marks() -> None:
    made = replaced(PAGE.read_text(), "made anew")
    assert made.index(BEGIN) < made.index("made anew") < made.index(END)


def test_a_chart_is_well_formed_whatever_its_labels_are_and_cuts_what_is_too_long() -> None:
    bars = [Bar("a < b & " + "c" * 90, 0.5, "½", GOOD), Bar("far off", 50.0, "50", BAD)]
    root = ElementTree.fromstring(bar_chart("<title>", bars, most=2.0, line=(1.0, "target")))
    widths = [float(rect.attrib["width"]) for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] * 4 == pytest.approx(widths[1], abs=0.5)
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<title>" in words
    assert " …50" in words


def test_the_table_says_plainly_what_is_missed() -> None:
    said = io.StringIO()
    Console(width=200, file=said).print(outcomes_table([outcome(), outcome("many", found=0.9)]))
    lines = said.getvalue().splitlines()
    assert [("MISSED" in line, " met " in line) for line in lines if "dense" in line] == [(False, True)]
    assert [("MISSED" in line, " met " in line) for line in lines if "many" in line] == [(True, False)]


def test_a_smaller_workload_keeps_what_each_tenant_gets() -> None:
    fewer = of_tenants(MANY, 100)
    assert (fewer.touched_tenants, fewer.seeded, fewer.changes) == (100, 10_000, MANY.changes // 2)
    assert of_tenants(SPARSE, 250) == replace(SPARSE, tenants=250, seeded=2_500)


def test_a_commit_waits_until_the_first_job_after_it_begins() -> None:
    lines = [
        "2026-01-01T11:59:59.900000Z [info     ] job_done applied=3 kind=changes ms=400 pipeline=bench service=applier",
        "2026-01-01T12:00:00.050000Z [info     ] reader_ready destinations=0 line=None service=reader",
        "2026-01-01T12:00:00.280000Z [info     ] job_done applied=2 kind=changes ms=160 pipeline=bench service=applier",
        "2026-01-01T12:00:00.500000Z [info     ] job_done applied=1 kind=changes ms=100 pipeline=bench service=applier",
        "2026-01-01T12:00:09.000000Z [info     ] job_done applied=1 kind=seed ms=7900 pipeline=bench service=applier",
        "2026-01-01T12:00:09.000000Z [info     ] job_done applied=1 kind=changes ms=1000 pipeline=bench",
    ]
    commits = [Followed(NOON.timestamp() + after, 0.3) for after in (0.0, 1.0)]
    assert until_job_ms("\n".join(lines), commits) == [120, 7000]
