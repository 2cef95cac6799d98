"""What a failed test of whole deployments shows besides itself: the ends of its services' logs."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LINES = 80


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    funcargs: dict[str, Any] = getattr(item, "funcargs", {})
    folder = funcargs.get("tmp_path")
    if report.when == "call" and report.failed and isinstance(folder, Path):
        for log in sorted(folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            report.sections.append((f"the end of {log.name}", "\n".join(lines[-LINES:])))
    return report
