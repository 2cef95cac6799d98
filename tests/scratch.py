"""Where worlds of tests have their files: in memory where a run has its own there (``tests.conftest``)."""

from __future__ import annotations

import os

VARIABLE = "PYTEST_DEBUG_TEMPROOT"


def scratch() -> str | None:
    """The folder for temporary ones; None for the machine's own."""
    return os.environ.get(VARIABLE)
