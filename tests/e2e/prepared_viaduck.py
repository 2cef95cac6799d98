"""``viaduck up`` as a process that is forked from one that has imported its code, and that of the services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from services.cli.runtime.running import RunningViaduck, UpProcess
from tests import prepared


class PreparedViaduck(RunningViaduck):
    """It takes 3 s of CPU less. What a real interpreter does at its start and its end is seen in ``test_up``."""

    def _start(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> UpProcess:
        return prepared.start(arguments, environ, log, log, prepared.UP, leads=True)
