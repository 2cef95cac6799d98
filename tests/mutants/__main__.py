"""``python -m tests.mutants [NAME …]``: plant each mistake in turn; every one must make its tests fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.mutants.mistake import Mistake
from tests.mutants.mistakes import MISTAKES
from tests.mutants.plugin import VARIABLE

WITHIN_S = 600


def main(names: list[str]) -> int:
    """Exit code 0 if every mistake was noticed; 1 if one survived; 2 for an unknown name."""
    unknown = set(names) - {mistake.name for mistake in MISTAKES}
    if unknown:
        print(f"no such mistake: {', '.join(sorted(unknown))}; there are: {' '.join(m.name for m in MISTAKES)}")
        return 2
    planted = [mistake for mistake in MISTAKES if not names or mistake.name in names]
    survived = [mistake for mistake in planted if not _is_noticed(mistake)]
    print(f"\n{len(survived)} survived" + "".join(f"\n  {mistake.name}: {mistake.what}" for mistake in survived))
    return 1 if survived else 0


def _is_noticed(mistake: Mistake) -> bool:
    """Whether its tests pass without the mistake is `make test-all`'s business; here they must fail."""
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.plugin", *mistake.noticed_by],
        env={**os.environ, VARIABLE: mistake.name},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    failed = run.returncode == pytest.ExitCode.TESTS_FAILED and " failed" in run.stdout
    how = _failure(run.stdout) if failed else f"SURVIVED (pytest's exit code {run.returncode})"
    print(f"{mistake.name:26} {mistake.what:52} {time.monotonic() - began:5.1f} s  {how}", flush=True)
    if not failed and run.returncode != pytest.ExitCode.OK:
        print(run.stdout[-2000:], run.stderr[-2000:])
    return failed


def _failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("FAILED")]
    return lines[0].removeprefix("FAILED ").split(" - ")[0] if lines else "failed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
