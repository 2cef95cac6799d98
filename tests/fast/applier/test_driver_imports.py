"""What an applier's driver has in memory of what only its workers need, or nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

WITH_PANDAS = """
import sys
from shared.lake.connection.engine import connect
sys.path.insert(0, sys.argv[1])
con = connect()
assert con.execute("SELECT ?, ?", [1, ["a"]]).fetchall() == [(1, ["a"])]
assert con.execute("FROM (VALUES (?))", ["a"]).to_arrow_table().num_rows == 1
print(sorted({"pandas"} & set(sys.modules)))
"""


@pytest.mark.parametrize("source", [IMPORTED, STARTED, BOUND])
def test_a_driver_imports_neither_arrow_nor_pandas_nor_the_work(source: str) -> None:
    """They are some 120 MB. Who wants Arrow later, has it. DuckDB looks for pandas with the first value it binds."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_duckdb_does_not_find_pandas_where_it_is_installed(tmp_path: Path) -> None:
    """It asks for it twice with each value."""
    (tmp_path / "pandas.py").write_text('NA = NaT = "a value"\n')
    command = [sys.executable, "-c", WITH_PANDAS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]", done.stderr
