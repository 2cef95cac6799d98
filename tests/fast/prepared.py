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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WITHIN_S = 60
COMMANDS = ("httpx", "rich.table", "viaduck_client", "services.cli")
CONTROL = ("services.control.service",)
"""What is imported in advance, beside ``services.cli.main``; of a package all of its modules."""

FORKING = """
import atexit, importlib, json, os, pkgutil, sys, threading, traceback
from services.cli import main as command_line

for name in sys.argv[1:]:
    for module in pkgutil.walk_packages(getattr(importlib.import_module(name), "__path__", ()), f"{name}."):
        if name == "services.cli":
            importlib.import_module(module.name)
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):
        pid, status = os.waitpid(asked, os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
else:
    sys.exit()

os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environ"])
write = os.O_WRONLY | os.O_APPEND
for number, (file, mode) in enumerate(((os.devnull, os.O_RDONLY), (asked["out"], write), (asked["err"], write))):
    os.dup2(os.open(file, mode), number)
sys.argv[:] = [command_line.__file__, *asked["arguments"]]
code = 1
try:
    command_line.main()
    code = 0
except SystemExit as end:
    code = int(end.code or 0)
except BaseException:
    traceback.print_exc()
finally:
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
"""


class _Forking:
    """One for the whole run, for each set of modules that it imports in advance."""

    def __init__(self, *imported: str) -> None:
        command = [sys.executable, "-c", FORKING, *imported]
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

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.parent.ask(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        due = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > due:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: tuple[str, ...], environ: dict[str, str], out: Path, err: Path, imported: tuple[str, ...]
) -> Prepared:
    """Begin a command whose streams are appended to two files."""
    parent = _forking(*imported)
    for file in (out, err):
        file.touch()
    asked = {"arguments": arguments, "environ": environ, "folder": str(Path.cwd()), "out": str(out), "err": str(err)}
    return Prepared(parent, parent.ask(asked))


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
