"""The demo as a user sees it: real processes, real data, a few days of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PLAY = """
import sys
from pathlib import Path
from services.cli.demo import main
sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
"""
WITHIN_S = 300


def start(folder: Path, days: int) -> subprocess.Popen[str]:
    """The demo in a session of its own, as in a terminal of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", PLAY, str(folder), str(days)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def working_on(folder: Path) -> list[str]:
    """Command lines of all processes that name the folder."""
    lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(folder) in line]


def test_the_demo_ends_with_sixteen_exact_lakes_and_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "viaduck-demo"
    demo = start(folder, 2)
    output, _ = demo.communicate(timeout=WITHIN_S)
    assert demo.returncode == 0, output
    assert "16 of 16 destinations of flights proven equal" in output
    assert "seeding" in output
    for command in ("viaduck up -c", "viaduck status -c", "viaduck verify -c"):
        assert command in output.split("Try next:")[1]
    assert working_on(folder) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_time_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    folder = tmp_path / "viaduck-demo"
    demo = start(folder, 31)
    log = folder / "viaduck.log"
    deadline = time.monotonic() + WITHIN_S
    while not (log.exists() and "applier" in log.read_text()):
        assert time.monotonic() < deadline
        assert demo.poll() is None, demo.communicate()[0]
        time.sleep(0.2)
    family = psutil.Process(demo.pid).children(recursive=True)
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=40)
    assert demo.returncode == code, output
    assert len(family) > 3
    assert [process for process in family if process.is_running()] == []
