"""Commands that are forked for tests."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests import prepared
from tests.prepared import Prepared


def test_an_exit_code_is_told_to_each_thread_that_waits_for_it(tmp_path: Path) -> None:
    """Of a service under torture two do: a thread that starts it again, and the test."""
    out, codes = tmp_path / "out", list[int]()

    def wait(process: Prepared) -> None:
        codes.append(process.wait(60))

    for _ in range(5):
        process = prepared.start(["--version"], dict(os.environ), out, out, prepared.COMMANDS)
        waiting = [threading.Thread(target=wait, args=(process,)) for _ in range(8)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    assert codes == [0] * 40
