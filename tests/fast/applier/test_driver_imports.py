"""What an applier's driver has in memory of what only its workers need, or nothing of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = """
import sys
import services.cli.main, services.applier.service
print(sorted({"pyarrow", "numpy", "fastavro", "services.applier.worker.spark_task"} & set(sys.modules)))
"""

STARTED = """
import sys
from shared.runtime.spark import session
from tests.fast.shared.runtime.test_spark import config
context = session(config(master="local[1]"), "test")
sent = context.parallelize([[1.5], "a"], 1).map(len).collect()
context.stop()
print(sorted({"pyarrow", "pandas"} & set(sys.modules)))
import pyarrow
"""


@pytest.mark.parametrize("source", [IMPORTED, STARTED])
def test_a_driver_imports_neither_arrow_nor_pandas_nor_the_work(source: str) -> None:
    """They are some 120 MB. Who wants Arrow later, has it."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]", done.stderr
