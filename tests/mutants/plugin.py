"""A pytest plugin that plants the mistake which ``VIADUCK_MISTAKE`` names, before any test is collected."""

from __future__ import annotations

import os

import pytest

from tests.mutants.mistakes import MISTAKES

VARIABLE = "VIADUCK_MISTAKE"


def pytest_configure(config: pytest.Config) -> None:
    name = os.environ.get(VARIABLE)
    if name is not None:
        next(mistake for mistake in MISTAKES if mistake.name == name).plant()
