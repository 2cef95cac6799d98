"""What Spark's Python workers are forked from."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from services.applier.spark_jobs import DAEMON as APPLIER
from services.cli.verify.command import DAEMON as VERIFY

FORKED = """
import importlib, os, sys
daemon, *needed = sys.argv[1:]
importlib.import_module(daemon).preload()
print(len(os.listdir("/proc/self/task")))
before = set(sys.modules)
for module in ("pyspark.worker", *needed):
    importlib.import_module(module)
print(sorted(set(sys.modules) - before))
"""

APPLIES = (
    "services.applier.worker.spark_calls",
    "services.applier.worker.spark_task",
    "services.applier.worker.task_run",
)
COMPARES = ("services.cli.verify.comparison",)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc of Linux")
@pytest.mark.parametrize(("daemon", "needed"), [(APPLIER, APPLIES), (VERIFY, COMPARES)], ids=["apply", "verify"])
def test_a_worker_has_nothing_left_to_import_and_no_thread_is_lost_by_its_fork(
    daemon: str, needed: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", FORKED, daemon, *needed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
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


SHIPPED = """
import sys
from services.applier.worker.daemon import preload
preload()
import pyspark, py4j
places = [*sys.path, *sys.path_importer_cache, pyspark.__file__, py4j.__file__]
print([place for place in places if place.startswith(tuple(sys.argv[1:]))])
"""


def test_pyspark_is_the_package_and_not_the_archives_in_which_spark_has_it_once_more() -> None:
    """Spark has them on the path of each daemon. To import of them compiles everything anew, and each task reads their
    contents once more."""
    package = Path(pyspark.__file__).parent
    archives = [*package.glob("python/lib/*.zip"), *package.glob("jars/spark-core_*.jar")]
    assert len(archives) == 3
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, archives), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", SHIPPED, *map(str, archives)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environ)
    assert done.stdout.strip() == "[]", done.stderr


ELSEWHERE = """
import sys
from shared.runtime.spark_daemon import leave_out_archives
leave_out_archives()
print([place for place in sys.path if place in sys.argv] == sys.argv[1:])
"""


def test_an_archive_stays_that_is_not_beside_the_package_which_is_imported(tmp_path: Path) -> None:
    """Another Spark's, or one of the user's own."""
    other = tmp_path / "spark" / "python" / "lib"
    other.mkdir(parents=True)
    archives = [str(other / "pyspark.zip"), str(tmp_path / "own.zip")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*archives, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", ELSEWHERE, *archives]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environ)
    assert done.stdout.split() == ["True"], done.stderr
