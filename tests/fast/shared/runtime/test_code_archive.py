from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shared.runtime.code_archive import NAME, write

WHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import services.applier.worker.worker_state, shared.contracts.errors
print(shared.__file__)
"""


def test_a_machine_that_has_only_the_parcel_imports_from_it_what_a_task_needs(tmp_path: Path) -> None:
    parcel = write(tmp_path / NAME)
    done = subprocess.run(
        [sys.executable, "-c", WHERE, str(parcel)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(parcel))
