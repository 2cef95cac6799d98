"""Tables in a pipe and on a narrow terminal: nothing that tells a destination apart, or why it stands, is cut."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console

from services.cli.output.findings import CheckFinding as Checked
from services.cli.output.findings import show as show_findings
from services.cli.output.listing import show_list
from services.cli.output.status_table import list_all, show_one, table_of
from services.cli.runtime.console import console
from services.cli.verify.comparison import ComparisonResult, Verdict
from services.cli.verify.report import Report
from shared.contracts.messages import Problem
from tests.fast.cli.fake_control import status

LONG = "tenant-" + "x" * 193
"""As long as an id may be."""
REASON = "the role may not write there " * 20 + "end"
ERROR = {"type": "access_denied", "message": REASON, "hint": "grant it", "retryable": False, "since": "…"}
PARKED = status(LONG, "parked", error=ERROR)


class Control:
    def pipelines(self) -> Sequence[str]:
        return ["p"]

    def pipeline(self, _: str) -> Mapping[str, Any]:
        return {"frontier": None}

    def destinations(self, _: str, **__: str) -> Sequence[Mapping[str, Any]]:
        return [PARKED]


def test_a_pipe_gets_every_destination_on_one_line_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_all(Control(), [], as_json=False) == 1  # type: ignore[arg-type]
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[0] == LONG
    assert f"access_denied: {REASON} → grant it" in line


def test_lists_details_and_checks_are_whole_in_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_list([{"id": LONG, "detail": REASON}], ("id", "detail"), as_json=False)
    show_one(PARKED, as_json=False)
    show_findings([Checked(f"destination {LONG}", False, REASON, "grant it")])
    said = capsys.readouterr().out
    assert said.count(LONG) == 4  # a destination's details have its routing value, too
    assert said.count(REASON) == 3


def test_verify_names_every_destination_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(type="access_denied", message=REASON, hint="grant it", retryable=False)
    Report("p", [Verdict(LONG, ComparisonResult.FAILED, problem=problem)], {}, 1.0).print(console())
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in said if line.strip().startswith(f"{LONG} ")] == ["failed"]
    assert f"{LONG}: failed: {REASON}" in said


def test_a_narrow_terminal_folds_ids_and_reasons_and_cuts_neither() -> None:
    terminal = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    terminal.print(table_of([PARKED]))
    assert isinstance(terminal.file, io.StringIO)
    said = terminal.file.getvalue()
    assert "…" not in said.replace("since", "")
    assert said.count("x") >= LONG.count("x")
