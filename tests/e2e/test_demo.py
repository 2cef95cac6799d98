"""The demo as a user sees it: real processes, real data, a few days of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

PLAY = """
import sys
from pathlib import Path
from viaduck_demo.command import main
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


@dataclass(frozen=True)
class Finished:
    folder: Path
    code: int
    output: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("demo") / "viaduck-demo"
    demo = start(folder, 2)
    output, _ = demo.communicate(timeout=WITHIN_S)
    return Finished(folder, demo.returncode, output)


def verify(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", "verify", "-c", str(folder / "viaduck.yaml"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def test_the_demo_ends_with_sixteen_exact_lakes(finished: Finished) -> None:
    assert finished.code == 0, finished.output
    assert "16 of 16 destinations of flights proven equal" in finished.output


def test_the_demo_leaves_no_process(finished: Finished) -> None:
    assert working_on(finished.folder) == []


def test_the_demo_ends_with_what_to_try_next(finished: Finished) -> None:
    for command in ("viaduck up -c", "viaduck status -c", "viaduck verify -c"):
        assert command in finished.output.split("Try next:")[1]


def test_verify_finds_a_row_that_somebody_took_out_of_a_lake(finished: Finished) -> None:
    with closing(connect()) as con:
        lake = ResolvedLake(f"sqlite:{finished.folder}/destinations/HA.sqlite")
        attach(con, "hawaiian", lake, read_only=False)
        con.execute("DELETE FROM hawaiian.flights WHERE flight_id = (SELECT min(flight_id) FROM hawaiian.flights)")
    found = verify(finished.folder, "--destination", "HA", "--destination", "AS", "--json")
    hawaiian, alaska = map(json.loads, found.stdout.splitlines())
    assert found.returncode == 1
    assert (hawaiian["result"], hawaiian["missing"]) == ("different", 1)
    assert alaska["result"] == "equal"


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
