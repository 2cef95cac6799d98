"""Answers that a task gives before it ends, as files in a folder that the driver reads: one tenant waits for no other.

Spark brings results with the end of a job. Where workers are processes of the driver's machine, a file is quicker. The
end of the job tells everything once more, so a file that is lost, or never written, only means a later answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.applier.model.task import TargetResult
from shared.contracts.messages import Progress

LEAVE_EVERY_S = 1.0
"""Far longer than most tasks take, so these never write a file."""

WRITTEN, UNDER_WAY = ".answers", ".part"


class AnswerFiles:
    """What one task has left so far. Used by the one thread that runs the task."""

    def __init__(self, folder: str | None) -> None:
        """``folder`` is None where the driver can't read what is written here."""
        self._folder = None if folder is None else Path(folder)
        self._left: set[int] = set()
        self._due_s = time.monotonic() + LEAVE_EVERY_S

    def leave(self, done: Mapping[int, TargetResult], *, at_once: bool = False) -> None:
        """Leave what is new of ``done``, by number, if it is time to. Raises ``OSError``."""
        if self._folder is None or not (at_once or time.monotonic() >= self._due_s):
            return
        new = [number for number in done if number not in self._left]
        self._due_s = time.monotonic() + LEAVE_EVERY_S
        if new:
            self._left.update(new)
            write(self._folder, [done[number].progress for number in new])


def write(folder: Path, answers: Sequence[Progress]) -> None:
    """Put a file of answers where ``take`` finds it whole or not at all. Raises ``OSError``."""
    name = uuid.uuid4().hex
    part = folder / f"{name}{UNDER_WAY}"
    part.write_bytes(b"\n".join(each.to_bytes() for each in answers))
    part.rename(folder / f"{name}{WRITTEN}")


def take(folder: Path) -> list[Progress]:
    """The answers that were written since the last call."""
    found: list[Progress] = []
    for file in folder.glob(f"*{WRITTEN}"):
        found += [Progress.from_bytes(line) for line in file.read_bytes().splitlines()]
        file.unlink()
    return found
