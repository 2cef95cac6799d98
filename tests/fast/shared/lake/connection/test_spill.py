"""No two instances share a folder for temporary files, nobody else looks into it, and nothing of it stays."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from shared.lake.connection import spill
from shared.lake.connection.engine import connect


def folder_of(con: duckdb.DuckDBPyConnection) -> Path:
    return Path(str(con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]))


def spilled(con: duckdb.DuckDBPyConnection) -> None:
    """More than the memory that it has."""
    con.execute("CREATE TABLE large AS SELECT i, repeat(md5(i::VARCHAR), 3) AS v FROM range(600_000) r(i)")


def test_two_instances_of_a_process_spill_into_folders_of_their_own_which_end_with_them() -> None:
    with closing(connect(memory_limit="50MB")) as one, closing(connect(memory_limit="50MB")) as other:
        folders = folder_of(one), folder_of(other)
        spilled(one)
        spilled(other)
        assert folders[0] != folders[1]
        for folder in folders:
            assert list(folder.iterdir()), "else it shows nothing"
            assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert one.execute("SELECT count(*), sum(i) FROM large").fetchall() == [(600_000, 179_999_700_000)]
    assert not any(folder.exists() for folder in folders)


def test_nothing_is_left_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(connect(memory_limit="50MB")) as con:
        spilled(con)
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_and_what_is_in_use_or_just_made_is_not(tmp_path: Path) -> None:
    say = "import os; from shared.lake.connection import spill; "
    say += "r = spill.root(); (r / 'f').touch(); print(r, flush=True); "
    ways = {"killed": "os._exit(9)", "ended": "pass", "living": "input()"}
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    roots: dict[str, Path] = {}
    living: subprocess.Popen[str] | None = None
    for name, end in ways.items():
        command = [sys.executable, "-c", say + end]
        started = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        roots[name] = Path(started.stdout.readline().strip())
        if name == "living":
            living = started
        else:
            started.communicate()
        if name == "killed":
            assert roots["killed"].exists(), "nobody was there to remove it"
    assert living is not None
    made, long_made = (Path(tempfile.mkdtemp(prefix=spill.PREFIX, dir=tmp_path)) for _ in range(2))
    os.utime(long_made, (time.time() - 3600,) * 2)
    spill.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {roots["living"].name, made.name}
    living.communicate("\n")
    spill.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {made.name}


def test_a_fork_has_a_folder_of_its_own() -> None:
    mine = spill.root()
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(spill.root()).encode())
        os._exit(0)
    os.close(writing)
    theirs = Path(os.read(reading, 1000).decode())
    os.close(reading)
    os.wait()
    assert theirs != mine
    assert spill.root() == mine


def test_instances_that_spill_side_by_side_keep_their_own_rows() -> None:
    """As an apply that is left behind and the task after it do; in one folder they read each other's blocks."""
    found: dict[str, list[tuple[int, int, int]]] = {}

    def work(name: str, word: str) -> None:
        with closing(connect(memory_limit="40MB")) as con:
            con.execute(f"CREATE TABLE t AS SELECT i, repeat('{word}', 40) || i AS v FROM range(250_000) r(i)")
            for _ in range(2):
                con.execute("CREATE OR REPLACE TABLE sorted AS SELECT * FROM t ORDER BY v DESC")
                con.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM sorted ORDER BY i")
            own = f"SELECT count(*), count(*) FILTER (v = repeat('{word}', 40) || i), count(DISTINCT i) FROM t"
            found[name] = con.execute(own).fetchall()

    threads = [threading.Thread(target=work, args=each) for each in (("one", "a"), ("other", "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"one": [(250_000,) * 3], "other": [(250_000,) * 3]}


def test_a_sweep_between_a_folder_and_its_lock_costs_no_process_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of another process, which locks by a file that it has opened itself."""
    swept: list[int] = []

    def sweep_before(lock: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not swept:
            swept.append(lock)
            spill.sweep(tmp_path)
        fcntl_flock(lock, how)

    fcntl_flock = fcntl.flock
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spill, "_root", None)
    monkeypatch.setattr(fcntl, "flock", sweep_before)
    mine = spill.root()
    assert swept, "else it shows nothing"
    spill.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]
    assert (mine / spill.LOCK).exists()


def test_nor_does_one_that_comes_before_the_lock_is_even_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process was frozen for a minute after it had made its folder."""
    makes, made = tempfile.mkdtemp, list[str]()

    def made_long_ago(**asked: Any) -> str:
        made.append(makes(**asked))
        if len(made) == 1:
            os.utime(made[0], (time.time() - 3600,) * 2)
            spill.sweep(tmp_path)
        return made[-1]

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spill, "_root", None)
    monkeypatch.setattr(tempfile, "mkdtemp", made_long_ago)
    mine = spill.root()
    assert len(made) == 2
    assert list(tmp_path.iterdir()) == [mine]
    assert (mine / spill.LOCK).exists()
