"""The specification in ``tla/``, checked by TLC: what the protocol promises holds in every reachable state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.mistakes import MISTAKES, Mistake
from tests.model.tlc import MODELS, SPECIFICATIONS, check, configured

WITHIN_S = 2_400
"""Minutes on a quiet machine; TLC lets everybody else go first, and a machine may be busy."""

pytestmark = pytest.mark.timeout(WITHIN_S + 60)

MODULE = MODELS / "Models.tla"

MISTAKEN = re.compile(r'Mutant (?:=|#) "(\w+)"')


def test_every_promise_holds_whatever_fails_and_whenever(tmp_path: Path) -> None:
    verdict = check(MODULE, configured("small"), tmp_path / "tlc", within_s=WITHIN_S)
    assert verdict.holds, verdict.output[-8000:]
    assert verdict.left == 0
    assert verdict.distinct >= 1_000_000


def test_every_running_destination_reaches_the_head_once_faults_stop(tmp_path: Path) -> None:
    verdict = check(MODULE, configured("live"), tmp_path / "tlc", within_s=WITHIN_S)
    assert verdict.holds, verdict.output[-8000:]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_in_the_specification_is_found(mistake: Mistake, tmp_path: Path) -> None:
    config = configured(mistake.model, Mutant=f'"{mistake.name}"', **mistake.given)
    verdict = check(
        MODULE, config, tmp_path / "tlc", within_s=WITHIN_S, workers=1
    )  # one mistake may break two promises
    assert verdict.broken == mistake.breaks, verdict.output[-8000:]


def test_every_mistake_that_the_specification_knows_is_planted() -> None:
    known = set(MISTAKEN.findall((SPECIFICATIONS / "Viaduck.tla").read_text()))
    assert known == {mistake.name for mistake in MISTAKES}
