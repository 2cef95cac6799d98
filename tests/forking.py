"""The process that ``tests.prepared`` starts: it imports the command line and what its arguments name, then forks.

Each line that it reads asks for a command, or for the exit code of one.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

import setproctitle

from services.cli import main as command_line
from shared.runtime.process import signal_at_parents_end


def _import(name: str) -> None:
    """Of the command line all modules."""
    module = importlib.import_module(name)
    if name == "services.cli":
        for each in pkgutil.walk_packages(module.__path__, f"{name}."):
            importlib.import_module(each.name)


def _exit_code(pid: int) -> int | None:
    pid, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def _say(answer: int | None) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def _run(asked: dict[str, Any]) -> NoReturn:
    """End as the interpreter does, but for the destructors of C++, which miss threads that a fork does not copy."""
    if asked["leads"]:
        os.setsid()
        signal_at_parents_end(signal.SIGTERM)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    append = os.O_WRONLY | os.O_APPEND
    for number, (file, mode) in enumerate(((os.devnull, os.O_RDONLY), (asked["out"], append), (asked["err"], append))):
        os.dup2(os.open(file, mode), number)
    sys.argv[:] = [str(command_line.__file__), *asked["arguments"]]
    setproctitle.setproctitle(" ".join([sys.executable, "-m", "services.cli.main", *asked["arguments"]]))
    code = 1
    try:
        command_line.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    setproctitle.setproctitle(" ".join(sys.orig_argv))  # it looks for its place once, in the environment as it is now
    for name in sys.argv[1:]:
        _import(name)
    if "duckdb" in sys.modules:
        sys.modules["duckdb"].default_connection().close()  # its thread would not be forked
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            _say(_exit_code(asked))
        elif (pid := os.fork()) == 0:
            _run(asked)
        else:
            _say(pid)


if __name__ == "__main__":
    main()
