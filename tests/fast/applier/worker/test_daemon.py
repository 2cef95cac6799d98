"""What Spark's Python workers are forked from."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKED = """
import os, sys
from services.applier.worker.daemon import preload
preload()
print(len(os.listdir("/proc/self/task")))
before = set(sys.modules)
import services.applier.worker.spark_task, services.applier.worker.task_run, pyspark.worker
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc of Linux")
def test_a_worker_has_nothing_left_to_import_and_no_thread_is_lost_by_its_fork() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["1", "[]"], done.stderr
