"""What is read of a stamp, which the lake's owner may have written too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.contracts.messages import CommitPath
from shared.lake.stamp import StampRead, read_stamp

OLDEST = {
    "viaduck": 1, "pipeline": "events", "destination": "a", "kind": "changes", "generation": 1, "after": 1,
    "through": 2, "item": "i", "token": "t", "deleted": 0, "inserted": 1,
}  # fmt: skip
"""A stamp as Viaduck wrote it before it committed anything itself."""


def read(**more: Any) -> StampRead:
    found = read_stamp(json.dumps({**OLDEST, **more}))
    assert found is not None
    return found


@pytest.mark.parametrize("path", list(CommitPath))
def test_a_stamp_says_who_committed(path: CommitPath) -> None:
    assert read(commit=path.value).path is path


def test_a_stamp_of_before_and_a_word_that_viaduck_never_writes_say_nothing_of_it() -> None:
    assert read().path is None
    assert read(commit="somehow").path is None
