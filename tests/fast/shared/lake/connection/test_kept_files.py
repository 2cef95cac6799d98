"""What an instance without a file system can't do any more."""

from __future__ import annotations

import subprocess
import sys

import pytest

SPILLED = """
import sys
from shared.lake.connection.engine import connect, release
from shared.lake.connection.kept_files import keep_files
con = connect(memory_limit="40MB")
con.execute("CREATE TEMP TABLE t AS SELECT md5(range::VARCHAR) FROM range(2000000)")
if sys.argv[1] == "anyway":
    con.execute("SET disabled_filesystems = 'LocalFileSystem'")
else:
    assert keep_files(con, "s3://bucket/l/")
    con = connect(memory_limit="40MB")
    con.execute("CREATE TEMP TABLE t AS SELECT md5(range::VARCHAR) FROM range(2000000)")
    assert not keep_files(con, "/lakes/l/")
release(con)
del con
print("ended")
"""


@pytest.mark.parametrize("how", ["anyway", "asked"])
def test_an_instance_that_spilled_keeps_its_disk_since_it_would_end_the_process(how: str) -> None:
    """It takes away its folder as it ends, and an error there can be caught by nothing."""
    done = subprocess.run([sys.executable, "-c", SPILLED, how], capture_output=True, text=True, check=False)
    assert ("ended" in done.stdout) == (how == "asked"), done.stderr
    assert ("terminate called" in done.stderr) == (how == "anyway")
