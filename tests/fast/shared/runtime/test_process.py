"""What a process of ours leaves behind when it ends: nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.runtime.process import end_children


@pytest.mark.skipif(sys.platform != "linux", reason="children are listed in /proc, which only Linux has")
def test_what_was_started_ends_however_deaf_it_is() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    program = (
        "import subprocess, sys; from shared.runtime.process import end_children\n"
        f"child = subprocess.Popen([sys.executable, '-c', {deaf!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "end_children()\n"
        "print(child.wait(30))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["-9"]


def test_where_nothing_was_started_nothing_happens() -> None:
    assert subprocess.run([sys.executable, "-c", f"from {end_children.__module__} import end_children; end_children()"],
                          timeout=60, check=False).returncode == 0  # fmt: skip
