"""Each planted mistake can be planted, and selects a test: a name that changed would leave it planting or noticing
nothing, which only hours of `make mutants` would tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from _pytest.mark.expression import Expression

from tests.mutants.mistake import Mistake
from tests.mutants.mistakes import MISTAKES

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


def test_each_selects_a_test() -> None:
    files = sorted({mistake.noticed_by[0].partition("::")[0] for mistake in MISTAKES})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    usual = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = subprocess.run(command, cwd=ROOT, env=usual, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not [mistake.name for mistake in MISTAKES if not any(_selects(mistake, nodeid) for nodeid in found)]


def _selects(mistake: Mistake, nodeid: str) -> bool:
    """As pytest does: a place or its beginning, and words of ``-k`` anywhere in a test's id."""
    *places, words = mistake.noticed_by if "-k" in mistake.noticed_by else (*mistake.noticed_by, "")
    if not any(nodeid == place or nodeid.startswith((f"{place}::", f"{place}[")) for place in places):
        return False

    def is_in(word: str, /, **_: str | int | bool | None) -> bool:
        return word.lower() in nodeid.lower()

    return not words or Expression.compile(words).evaluate(is_in)
