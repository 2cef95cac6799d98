"""What Python workers of this machine are forked from: Spark's own daemon, with all that a task needs imported before.

Each worker would import it for itself otherwise: a second of CPU and its own copy in memory, at each start and when
a worker has ended. For this machine alone: an executor elsewhere gets our code after its daemon runs.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from shared.runtime.garbage import importing

SPARK = ("pyspark.daemon", "pyspark.worker")

WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""A thread does not survive a fork, and the locks that it holds do. NumPy and Arrow would start some when imported."""

WITHOUT_POOLS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own allocator keeps twice as much as it has given out, where columns of megabytes come and go."""

SHIPPED = (Path("python", "lib"), Path("jars"))
"""Where a package of PySpark's has itself and Py4J as archives, and Spark's jars, one of which is on the path, too."""

M_MMAP_THRESHOLD, LARGE = -3, 1 << 20
"""What is freed of so many bytes or more goes back to the system at once. By itself glibc raises that to the largest
buffer that it has seen, up to 32 MB: of Kafka's client some are that large, and the space of each stays."""


def preload(*modules: str) -> Any:
    """Import ``modules``, without a thread and outside of searches for garbage, which would copy their pages.

    Returns PySpark's module of a daemon.
    """
    for name, value in (WITHOUT_THREADS | WITHOUT_POOLS).items():
        os.environ.setdefault(name, value)
    _return_large_buffers()
    leave_out_archives()
    with importing():
        daemon, *_ = [importlib.import_module(module) for module in (*SPARK, *modules)]
    importlib.import_module("duckdb").default_connection().close()  # an unused instance, with a thread
    gc.collect()
    gc.freeze()
    return daemon


def leave_out_archives() -> None:
    """Spark puts PySpark on a daemon's path once more, as archives that lie in the installed package. They come first,
    and hold sources alone: a daemon would compile for a second what is there compiled. And before each task PySpark
    forgets what modules there are, upon which the list of each archive's files is read again: 40 ms of every task.
    """
    packages = [(Path(place) / "pyspark").resolve() for place in sys.path]
    folders = {package / shipped for package in packages for shipped in SHIPPED}
    archives = tuple(place for place in sys.path if Path(place).resolve().parent in folders)
    sys.path[:] = [place for place in sys.path if place not in archives]
    for place in [each for each in sys.path_importer_cache if each.startswith(archives)]:
        del sys.path_importer_cache[place]


def _return_large_buffers() -> None:
    """Where there is glibc. Processes that are forked inherit it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)
