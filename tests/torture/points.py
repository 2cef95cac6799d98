"""The nine named points at which an applier is killed or frozen, how a point is armed and told, and services' clocks.

The services know nothing of it: ``plant/sitecustomize.py`` wraps their functions in the processes of a fleet. A point
is a file: whoever passes it and renames it is the one who dies there.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FOLDER = "VIADUCK_TORTURE_POINTS"
"""The environment variable that names the folder of the armed points."""


SERVICES = ("reader", "control", "applier")


class Point(StrEnum):
    """In the order in which one item passes them."""

    AFTER_READ = "after-read"
    BEFORE_TRANSACTION = "before-transaction"
    AFTER_FENCE = "after-fence"
    BEFORE_COMMIT = "before-commit"
    WITHIN_BATCH = "within-batch"
    """A direct commit has claimed its number, and the server waits for the rest."""
    DURING_COMMIT = "during-commit"
    AFTER_COMMIT = "after-commit"
    BEFORE_PROGRESS = "before-progress"
    BEFORE_OFFSET_COMMIT = "before-offset-commit"


class Deed(StrEnum):
    """What happens at a point."""

    KILL_ALL = "kill-all"
    """The applier with its JVM and its workers, at one instruction."""
    KILL_ONE = "kill-one"
    """Only the process that passes: a Spark worker loses its Python, a driver its life."""
    FREEZE_ALL = "freeze-all"
    """SIGSTOP the applier with everything that belongs to it; somebody else must wake it."""


@dataclass(frozen=True)
class Passed:
    """``pid`` of the applier that passed a point, and for which ``destination``; "" where the point doesn't tell."""

    pid: int
    destination: str


@dataclass(frozen=True)
class Points:
    """The folder in which points are armed. ``arm`` one, then wait for it to be ``taken``."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """What the processes of a fleet have to be started with."""
        plant = Path(__file__).parent / "plant"
        root = Path(__file__).parents[2]
        return {FOLDER: str(self.folder), "PYTHONPATH": f"{plant}{os.pathsep}{root}"}

    @property
    def is_armed(self) -> bool:
        return any((self.folder / point).exists() for point in Point)

    def arm(self, point: Point, deed: Deed) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{point}.new"
        unfinished.write_text(deed)
        unfinished.rename(self.folder / point)

    def disarm(self, point: Point) -> bool:
        """Whether it was still armed."""
        try:
            (self.folder / point).unlink()
        except FileNotFoundError:
            return False
        return True

    def set_clock(self, service: str, ahead_s: int) -> None:
        """Let a service's wall clock be so far ahead from now on, or behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{service}.clock.new"
        unfinished.write_text(str(ahead_s))
        unfinished.rename(self.folder / f"{service}.clock")

    def taken(self, point: Point) -> Passed | None:
        """Who passed the point since it was armed; None while nobody did."""
        try:
            pid, _, destination = (self.folder / f"{point}.taken").read_text().partition(" ")
        except FileNotFoundError:
            return None
        return Passed(int(pid), destination) if pid else None

    def wait_until_taken(self, point: Point, timeout_s: float) -> Passed | None:
        deadline = time.monotonic() + timeout_s
        while (passed := self.taken(point)) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        (self.folder / f"{point}.taken").unlink()
        return passed
