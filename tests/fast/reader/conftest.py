from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast.reader.lakes import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()
