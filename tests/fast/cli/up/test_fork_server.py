"""Commands that are forked from a process that has imported their code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fast.cli.up.test_supervisor import gone
from tests.fast.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")

SCENE = """
import json, os, signal, sys, time
from pathlib import Path
import duckdb
from services.cli.runtime.run_service import SERVICES
from services.cli.up.fork_server import TITLE, ForkServer
from services.cli.up.supervisor import Spec

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a parent may leave it

def children():
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]

def title(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\\0").replace(b"\\0", b" ").decode()

def threads(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))

def until(done):
    while not done():
        time.sleep(0.005)

def start(*arguments, **environ):
    output = os.open("output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    process = server.launch(Spec("it", (sys.executable, "-m", "services.cli.main", *arguments)), environ, output)
    os.close(output)
    return process

def told():
    until(lambda: Path("output").exists() and Path("output").read_text().endswith("\\n"))
    return json.loads(Path("output").read_text())

with ForkServer(["tests.fast.cli.up.forked_command"]) as server:
    [forking] = children()
    until(lambda: title(forking) == TITLE)
"""
"""A supervisor's process. What it prints at its end, as JSON, is what a test looks at."""


def scene(folder: Path, *lines: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", SCENE + "\n".join(f"    {line}" for line in lines)],
        capture_output=True, text=True, timeout=60, cwd=folder, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def scene_with(modules: str, folder: Path, *lines: str) -> Any:
    """The same with a fork server that imports other modules, and may not have yet."""
    again = ("server.close()", f"with ForkServer({modules}) as server:", "    [forking] = children()")
    return scene(folder, *again, *(f"    {line}" for line in lines))


def test_a_command_is_forked_and_is_what_a_program_would_be(tmp_path: Path) -> None:
    own, forking, pid, name, code, told = scene(
        tmp_path,
        "process = start('tell', 'a b', TOLD='x')",
        "name = title(process.pid)",
        "until(lambda: process.poll() is not None)",
        "print(json.dumps([os.getpid(), forking, process.pid, name, process.poll(), told()]))",
    )
    assert code == 7
    assert name == f"{sys.executable} -m services.cli.main tell a b"
    assert told == {
        "word": "a b", "told": "x", "pid": pid, "parent": own, "session": pid, "blocked": [signal.SIGHUP],
        "threads": 1, "duckdb": True, "input": "",
    }  # fmt: skip
    assert forking not in (own, pid)


def test_what_is_asked_for_before_all_is_imported_is_forked_as_well(tmp_path: Path) -> None:
    code, after = scene_with(
        "['services.control.service']",
        tmp_path,
        "process = start('--version')",
        "until(lambda: process.poll() is not None and title(forking) == TITLE)",
        "print(json.dumps([process.poll(), title(forking)]))",
    )
    assert (code, after) == (0, "viaduck: fork server")


def test_neither_the_fork_server_nor_its_parent_has_a_thread_when_it_forks(tmp_path: Path) -> None:
    """A thread is not copied, and locks that it holds stay locked. DuckDB, NumPy and Arrow start some when imported."""
    assert scene_with(
        "list(SERVICES.values())",
        tmp_path,
        "own = threads(os.getpid())",
        "until(lambda: title(forking) == TITLE)",
        "print(json.dumps([own, threads(forking)]))",
    ) == [1, 1]


def test_a_signal_ends_it_and_is_its_exit_code(tmp_path: Path) -> None:
    title, before, after = scene(
        tmp_path,
        "process = start('tell', 'a', '--stays')",
        "told()",
        "before = process.poll()",
        "process.send_signal(signal.SIGTERM)",
        "until(lambda: process.poll() is not None)",
        "process.send_signal(signal.SIGTERM)  # it is gone, and its id may be another's",
        "print(json.dumps([title(forking), before, process.poll()]))",
    )
    assert (title, before, after) == ("viaduck: fork server", None, -signal.SIGTERM)


def test_without_a_fork_server_commands_start_as_programs(tmp_path: Path) -> None:
    """Somebody may have killed it; what it has started goes on."""
    codes, text = scene(
        tmp_path,
        "first = start('tell', 'a', '--stays')",
        "told()",
        "os.kill(forking, signal.SIGKILL)",
        "os.waitpid(forking, 0)",
        "codes = [first.poll()]",
        "Path('output').unlink()",
        "for _ in range(2):",
        "    process = start('--version')",
        "    until(lambda: process.poll() is not None)",
        "    codes.append(process.poll())",
        "first.send_signal(signal.SIGKILL)",
        "print(json.dumps([codes, Path('output').read_text()]))",
    )
    assert codes == [None, 0, 0]
    assert text.startswith("viaduck ")
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("command", ["[sys.executable, '-c', 'print(1)']", "['echo', '1']"])
def test_what_is_no_command_of_ours_starts_as_a_program(tmp_path: Path, command: str) -> None:
    assert (
        scene(
            tmp_path,
            "output = os.open('output', os.O_CREAT | os.O_WRONLY)",
            f"process = server.launch(Spec('it', {command}), {{}}, output)",
            "until(lambda: process.poll() is not None)",
            "print(json.dumps(Path('output').read_text()))",
        )
        == "1\n"
    )


def test_what_is_too_much_for_a_request_starts_as_a_program(tmp_path: Path) -> None:
    assert scene(
        tmp_path,
        "process = start('--version', **{f'LARGE_{n}': 'x' * 100_000 for n in range(8)})",
        "until(lambda: process.poll() is not None)",
        "print(json.dumps([process.poll(), Path('output').read_text()[:7]]))",
    ) == [0, "viaduck"]


def test_the_fork_server_ends_with_its_parent_and_what_was_forked_goes_on(tmp_path: Path) -> None:
    """A service ends itself when its parent does (``die_with_parent``); the fork server has no part in that."""
    forking, pid = scene(
        tmp_path,
        "process = start('tell', 'a', '--stays')",
        "told()",
        "print(json.dumps([forking, process.pid]), flush=True)",
        "os._exit(0)",
    )
    try:
        eventually(lambda: gone(forking))
        assert not gone(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_nothing_is_left_of_a_fork_server_that_was_closed_whatever_it_is_at(tmp_path: Path) -> None:
    assert scene(
        tmp_path,
        "ends = [lambda: None, lambda: os.kill(max(children()), signal.SIGKILL)]",
        "left = []",
        "for end in ends:",
        "    with ForkServer(['services.control.service']) as server:",
        "        end()",
        "    left.append([pid for pid in children() if pid != forking])",
        "print(json.dumps(left))",
    ) == [[], []]


FORKS = """
import json, os, time
from shared.runtime import background

loop = background.Background("work", lambda loop: time.sleep(60), turns_within_s=0.0)
loop.start()
while not background.standing_still():
    time.sleep(0.001)
read, write = os.pipe()
with background._loops.guard:  # as another thread may have it
    if os.fork() == 0:
        os.write(write, json.dumps([background.problems(), background.standing_still()]).encode())
        os._exit(0)
os.close(write)
print(os.read(read, 1000).decode(), flush=True)
os._exit(0)
"""


def test_a_process_that_was_forked_misses_no_loop_of_its_parent() -> None:
    """It has none of its threads. Readers that were forked said after two minutes that these stood still."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[{}, {}]\n"
