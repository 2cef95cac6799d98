"""The command line in a process of its own for each command, which is forked from one that has imported it.

A third of a second of CPU goes into the interpreter's start and imports; a command itself takes a few hundredths. Each
command still has a process, its streams, environment and exit code, and ends as the interpreter does.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

WITHIN_S = 60

FORKING = """
import importlib, json, os, pkgutil, signal, sys
import httpx, rich.table, viaduck_client
import services.cli
from services.cli import main as command_line

for module in pkgutil.walk_packages(services.cli.__path__, "services.cli."):
    importlib.import_module(module.name)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()

asked = json.loads(line)
signal.alarm(asked["within_s"])
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environ"])
for number, name in enumerate((os.devnull, asked["out"], asked["err"])):
    os.dup2(os.open(name, os.O_WRONLY if number else os.O_RDONLY), number)
sys.argv[:] = [command_line.__file__, *asked["arguments"]]
command_line.main()
"""


@cache
def _forking() -> subprocess.Popen[str]:
    """One for the whole run."""
    command = [sys.executable, "-c", FORKING]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command did that an interpreter was started for, as a user's is: for those that start Spark themselves."""
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def viaduck(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What a command did; its exit code is negative if a signal has ended it, and -14 after a minute."""
    forking = _forking()
    assert forking.stdin is not None
    assert forking.stdout is not None
    with tempfile.TemporaryDirectory(prefix="viaduck-cli-") as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        for file in (out, err):
            file.touch()
        asked = {
            "arguments": arguments, "environ": {**os.environ, **environ}, "folder": str(Path.cwd()),
            "out": str(out), "err": str(err), "within_s": WITHIN_S,
        }  # fmt: skip
        print(json.dumps(asked), file=forking.stdin, flush=True)
        code = int(forking.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())
