"""What ``viaduck up --once`` shows meanwhile: a bar on a terminal with the log above it, else only the log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import progress as bars
from rich.console import Console

from services.cli.output.sanitize import legible
from services.cli.up.outcome import ProgressSummary
from services.cli.up.supervisor import STANDARD_ERROR
from shared.runtime.background import Background


class ProgressDisplay:
    """Without a terminal: the processes log to standard error by themselves, and nothing moves."""

    output = STANDARD_ERROR
    """Where the processes' own output goes."""

    def show(self, tallies: Sequence[ProgressSummary]) -> None:
        """Nothing to move."""

    def say(self, *lines: str) -> None:
        """Tell the command's outcome."""
        for line in lines:
            sys.stderr.write(f"{legible(line)}\n")


class Bar(ProgressDisplay):
    """On a terminal: two writers would tear the bar, so the processes' output comes through a pipe and is put above."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._reading, self.output = os.pipe()
        columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
        self._bars = bars.Progress(*columns, bars.TimeElapsedColumn(), console=self._console, transient=True)
        self._task = self._bars.add_task("starting", total=None)
        self._lines = os.fdopen(self._reading, errors="replace")
        self._pump = Background("log above the bar", self._copy)

    def start(self) -> None:
        self._bars.start()
        self._pump.start()
        self._own_log = os.fdopen(self.output, "w", buffering=1)
        self._log_to(self._own_log)

    def stop(self) -> None:
        self._log_to(sys.stderr)
        self._own_log.close()
        self._pump.stop(5.0)
        self._bars.stop()

    def show(self, tallies: Sequence[ProgressSummary]) -> None:
        wanted, behind = (sum(map(len, each)) for each in zip(*((t.wanted, t.behind) for t in tallies), strict=True))
        description = f"to snapshot {', '.join(str(tally.head) for tally in tallies)}"
        self._bars.update(self._task, description=description, total=wanted, completed=wanted - behind)

    def say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(legible(line), markup=False, highlight=False)

    @staticmethod
    def _log_to(stream: TextIO) -> None:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(stream)

    def _copy(self, loop: Background) -> None:
        """Until the last writer is gone: a pipe without a reader would block it."""
        for line in self._lines:
            loop.turned()
            self._console.print(line.rstrip("\n"), markup=False, highlight=False, soft_wrap=True)
        self._lines.close()


@contextmanager
def shown(once: bool) -> Iterator[ProgressDisplay]:
    if not (once and sys.stderr.isatty()):
        yield ProgressDisplay()
        return
    bar = Bar()
    bar.start()
    try:
        yield bar
    finally:
        bar.stop()
