"""A command for the tests of what starts commands: it tells what its process is."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Annotated

import typer

from services.cli.main import app


@app.command("tell")
def tell(
    word: str,
    stays: Annotated[bool, typer.Option("--stays", help="Run until a signal ends it.")] = False,
) -> None:
    """Tell it as JSON, and exit with code 7."""
    process = {
        "word": word,
        "told": os.environ.get("TOLD"),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - names alone
        "duckdb": "duckdb" in sys.modules,
        "input": sys.stdin.read(),
    }
    sys.stdout.write(f"{json.dumps(process)}\n")
    sys.stdout.flush()
    while stays:
        signal.pause()
    raise typer.Exit(7)
