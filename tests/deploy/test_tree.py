"""What is tracked is source: no package, archive or recording that a command happened to leave in the folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 512 * 1024
"""More than twice the largest: the lock file, and pictures of the page."""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what is tracked is known to git only: clone the repository")
def test_no_tracked_file_is_large() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    assert files
    assert [str(file) for file in files if file.is_file() and file.stat().st_size > MOST_BYTES] == []
