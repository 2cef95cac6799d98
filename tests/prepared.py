"""The command line in a process of its own for each command, which is forked from one that has imported it.

Up to two seconds of CPU go into the interpreter's start and imports, and a command takes a few hundredths of one. Each
still has a process, with its streams, environment, signals and exit code. It ends as the interpreter does, threads and
``atexit`` first, but for the destructors of C++: of threads that were left behind by the fork they would abort.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from services.cli.runtime.run_service import SERVICES

WITHIN_S = 60
COMMANDS = ("httpx", "rich.table", "viaduck_client", "services.cli")
CONTROL = ("services.control.service",)
UP = ("services.cli.up.command", *SERVICES.values())
"""What is imported in advance, beside ``services.cli.main``; of a package all of its modules."""


class _Forking:
    """One for the whole run, for each set of modules that it imports in advance."""

    def __init__(self, *imported: str) -> None:
        command = [sys.executable, "-m", "tests.forking", *imported]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._turn = threading.Lock()
        atexit.register(self._process.communicate)

    def ask(self, asked: object) -> Any:
        """The id of a process that is to be started, or the exit code of the one with that id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


_forking = cache(_Forking)


@dataclass
class Prepared:
    """A process that was forked, as ``subprocess.Popen`` shows one."""

    parent: _Forking
    pid: int
    returncode: int | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    """An exit code is told once, and threads ask for it at the same time."""

    def poll(self) -> int | None:
        with self._turn:
            if self.returncode is None:
                self.returncode = self.parent.ask(self.pid)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        due = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and due is not None and time.monotonic() > due:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    out: Path,
    err: Path,
    imported: tuple[str, ...],
    *,
    leads: bool = False,
) -> Prepared:
    """Begin a command whose streams are appended to two files. ``leads``: a session of its own."""
    parent = _forking(*imported)
    for file in (out, err):
        file.touch()
    asked = {
        "arguments": list(arguments), "environ": dict(environ), "folder": str(Path.cwd()),
        "out": str(out), "err": str(err), "leads": leads,
    }  # fmt: skip
    return Prepared(parent, parent.ask(asked))


def command_of(process: psutil.Process) -> list[str]:
    """The words of a command line, which a forked process has as one text."""
    return " ".join(process.cmdline()).split()


def viaduck(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What a command did; its exit code is negative if a signal has ended it."""
    with tempfile.TemporaryDirectory(prefix="viaduck-cli-") as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        process = start(arguments, {**os.environ, **environ}, out, err, COMMANDS)
        try:
            code = process.wait(WITHIN_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command did that an interpreter was started for, as a user's is: for those that start Spark themselves."""
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
