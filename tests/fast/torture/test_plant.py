"""Points are planted in modules as a process imports them, and nothing is imported for a point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.torture.points import Point, Points

IMPORTED = """
import sys
sitecustomize = sys.modules["sitecustomize"]
assert not any(name in sys.modules for name in sitecustomize.PLANTS), "nothing is imported for a point"
for name in sitecustomize.PLANTS:
    __import__(name)
from shared.kafka.work_consumer import WorkConsumer
sitecustomize._take = lambda point, destination="": print(point)
try:
    WorkConsumer.commit(None, [1])
except AttributeError:
    pass
"""


def test_a_module_has_its_points_once_it_is_imported(tmp_path: Path) -> None:
    points = Points(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, "applier"], env=points.environ, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, [Point.BEFORE_OFFSET_COMMIT]), done.stderr
