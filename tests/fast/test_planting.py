"""Each planted mistake can be planted, and selects a test: a name that changed would leave it planting or noticing
nothing, which only hours of `make mutants` would tell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from _pytest.mark.expression import Expression

from tests.mutants.mistake import Mistake
from tests.mutants.mistakes import MISTAKES
from tests.tiers import Tier

ROOT = Path(__file__).resolve().parents[2]

PLANT = """
import os, traceback
from tests.mutants.mistakes import MISTAKES

for mistake in MISTAKES:
    pid = os.fork()
    if pid == 0:
        try:
            mistake.plant()
        except BaseException:
            print(mistake.name, traceback.format_exc(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print("all were tried")
"""


def test_each_can_be_planted() -> None:
    done = subprocess.run([sys.executable, "-c", PLANT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "all were tried\n"


def test_each_selects_a_test(all_tests: Mapping[str, Tier]) -> None:
    places: dict[str, list[str]] = {}
    for nodeid in all_tests:
        places.setdefault(nodeid.partition("::")[0], []).append(nodeid)
    found = {mistake.name: places.get(mistake.noticed_by[0].partition("::")[0], ()) for mistake in MISTAKES}
    selected = {mistake.name for mistake in MISTAKES if any(_selects(mistake, each) for each in found[mistake.name])}
    assert sorted(mistake.name for mistake in MISTAKES if mistake.name not in selected) == []


def _selects(mistake: Mistake, nodeid: str) -> bool:
    """As pytest does: a place or its beginning, and words of ``-k`` anywhere in a test's id."""
    *places, words = mistake.noticed_by if "-k" in mistake.noticed_by else (*mistake.noticed_by, "")
    if not any(nodeid == place or nodeid.startswith((f"{place}::", f"{place}[")) for place in places):
        return False

    def is_in(word: str, /, **_: str | int | bool | None) -> bool:
        return word.lower() in nodeid.lower()

    return not words or Expression.compile(words).evaluate(is_in)
