"""The specification in ``tla/``, checked by TLC: what the protocol promises holds in every reachable state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.mistakes import MISTAKES, Mistake
from tests.model.tlc import SPECIFICATIONS, check, configured, module_of

WITHIN_S = 2_400
"""Minutes on a quiet machine; TLC lets everybody else go first, and a machine may be busy."""

pytestmark = pytest.mark.timeout(WITHIN_S + 60)

MISTAKEN = re.compile(r'Mutant (?:=|#) "(\w+)"')


STATES = {
    "small": 620_000, "small-broker": 270_000, "small-upkeep": 55_000, "lives": 70_000, "expiry": 30_000,
    "direct": 100_000, "direct-mixed": 150_000, "direct-first": 10_000, "topics": 30_000, "topics-lives": 25_000,
    "columns": 10_000,
}  # fmt: skip
"""Distinct states that a model has at least, or it no longer has what it is meant for."""

LARGE = ("small", "small-broker", "direct")
"""Worth the time that a thorough compilation takes."""


@pytest.mark.parametrize("model", STATES)
def test_every_promise_holds_whatever_fails_and_whenever(model: str, tmp_path: Path) -> None:
    config, is_large = configured(model), model in LARGE
    verdict = check(module_of(model), config, tmp_path / "tlc", within_s=WITHIN_S, large=is_large)
    assert verdict.holds, verdict.output[-8000:]
    assert verdict.left == 0
    assert verdict.distinct >= STATES[model]


def test_every_running_destination_reaches_the_head_once_faults_stop(tmp_path: Path) -> None:
    verdict = check(module_of("live"), configured("live"), tmp_path / "tlc", within_s=WITHIN_S)
    assert verdict.holds, verdict.output[-8000:]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_in_the_specification_is_found(mistake: Mistake, tmp_path: Path) -> None:
    config = configured(mistake.model, Mutant=f'"{mistake.name}"', **mistake.given)
    verdict = check(module_of(mistake.model), config, tmp_path / "tlc", within_s=WITHIN_S)
    assert verdict.broken == mistake.breaks, verdict.output[-8000:]


def test_every_mistake_that_the_specification_knows_is_planted() -> None:
    known = [
        set(MISTAKEN.findall((SPECIFICATIONS / f"{name}.tla").read_text()))
        for name in ("Viaduck", "DirectCommit", "Topics", "Columns")
    ]
    assert sorted(name for names in known for name in names) == sorted(mistake.name for mistake in MISTAKES)
