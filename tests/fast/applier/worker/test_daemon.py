"""What Spark's Python workers are forked from."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FORKED = """
import os, sys
from services.applier.worker.daemon import preload
preload()
print(len(os.listdir("/proc/self/task")))
before = set(sys.modules)
import services.applier.worker.spark_calls, services.applier.worker.spark_task, services.applier.worker.task_run
import pyspark.worker
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc of Linux")
def test_a_worker_has_nothing_left_to_import_and_no_thread_is_lost_by_its_fork() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["1", "[]"], done.stderr


ALLOCATED = """
import ctypes
from services.applier.worker.daemon import preload
preload()
import pyarrow

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "mapped", "usm", "fsm", "used", "free", "keepcost")]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallinfo2.restype = Info
libc.free(libc.malloc(30_000_000))
before = libc.mallinfo2().mapped
kept = libc.malloc(8_000_000)
print(pyarrow.default_memory_pool().backend_name, libc.mallinfo2().mapped - before >= 8_000_000)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc, which is not this system's")
def test_large_buffers_of_a_worker_are_mappings_of_their_own_whatever_was_freed_before() -> None:
    """They go back to the system as they are freed."""
    done = subprocess.run([sys.executable, "-c", ALLOCATED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["system", "True"], done.stderr
