"""What the documentation says about names is held against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.errors import POLICY, Action

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/OPERATIONS.md").read_text()


@pytest.mark.parametrize("type", [type for type, action in POLICY.items() if action in (Action.PARK, Action.RETRY)])  # noqa: A001
def test_operations_explains_every_reason(type: str) -> None:
    assert f"`{type}`" in OPERATIONS


def test_hazards_names_tests_that_exist() -> None:
    text = (ROOT / "docs/HAZARDS.md").read_text()
    named = set(re.findall(r"(tests/[\w/]+\.py)", text))
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
