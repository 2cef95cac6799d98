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

BOUND = """
import sys
from shared.lake.connection.engine import connect
assert connect().execute("SELECT ?", [1]).fetchall() == [(1,)]
print(sorted(name for name in ("pyarrow", "pandas", "numpy") if sys.modules.get(name) is not None))
"""


@pytest.mark.parametrize("source", [IMPORTED, STARTED, BOUND])
def test_a_driver_imports_neither_arrow_nor_pandas_nor_the_work(source: str) -> None:
    """They are some 120 MB. Who wants Arrow later, has it. DuckDB looks for pandas with the first value it binds."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]", done.stderr
