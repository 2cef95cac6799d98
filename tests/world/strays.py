"""Files in a lake's folder that no snapshot names: upkeep takes the old ones, and no other file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from shared.contracts.messages import Progress
from shared.contracts.upkeep import StepOutcome, UpkeepStep
from tests.world.lake import Lake

OLD_S = 40 * 86_400.0
CONTENT = b"PAR1"


class Strays:
    """Lays an old one and a young one into ``lake``, and dates all files back that are there: no age protects one that
    a snapshot names. A lake whose files are elsewhere gets none."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._swept = False
        self._old = self._young = None
        if lake.data_path is None or not lake.is_local:
            return
        folder = Path(lake.data_path) / "main"
        folder.mkdir(parents=True, exist_ok=True)
        self._old, self._young = folder / "old-stray.parquet", folder / "young-stray.parquet"
        self._old.write_bytes(CONTENT)
        then = time.time() - OLD_S
        for file in Path(lake.data_path).rglob("*.parquet"):
            os.utime(file, (then, then))
        self._young.write_bytes(CONTENT)

    def hear(self, lake: Lake, answer: Progress) -> None:
        """What an upkeep of a destination came to, in whichever lake that is."""
        steps = answer.upkeep.steps if answer.upkeep is not None and lake == self._lake else ()
        done = (step for step in steps if step.step is UpkeepStep.ORPHANS and step.outcome is StepOutcome.DONE)
        self._swept = self._swept or any(done)

    def complaints(self) -> Iterator[str]:
        if self._old is None or self._young is None:
            return
        if self._swept and self._old.exists():
            yield f"{self._old} is no file of the lake, and upkeep has left it"
        if not self._young.exists():
            yield f"{self._young} is too young to be taken"
        self._young.unlink(missing_ok=True)
        self._old.unlink(missing_ok=True)
