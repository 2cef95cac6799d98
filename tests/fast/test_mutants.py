"""Planted mistakes are noticed early: most of them by `make check`, which is run before each commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.mistake import Mistake
from tests.mutants.mistakes import MISTAKES
from tests.one_by_one import ONE_BY_ONE
from tests.tiers import WITHIN_THE_PROCESS

ROOT = Path(__file__).resolve().parents[2]


def test_every_mistake_has_a_name_of_its_own() -> None:
    assert not [name for name, times in Counter(mistake.name for mistake in MISTAKES).items() if times > 1]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_what_notices_a_mistake_is_there(mistake: Mistake) -> None:
    place, _, name = mistake.noticed_by[0].partition("::")
    assert (ROOT / place).is_file()
    assert f"def {name.partition('[')[0].rpartition('::')[2]}" in (ROOT / place).read_text()


def test_most_mistakes_are_noticed_by_make_check() -> None:
    noticed = [mistake.name for mistake in MISTAKES if mistake.is_noticed_by_check]
    assert len(noticed) > len(MISTAKES) / 2, f"{len(noticed)} of {len(MISTAKES)}"


def test_of_tests_on_lakes_check_has_those_alone_that_notice_a_mistake() -> None:
    named = {place for mistake in MISTAKES for place in mistake.noticed_by}
    assert not [nodeid for nodeid in ONE_BY_ONE if nodeid.startswith("tests/lake/") and nodeid not in named]


@pytest.mark.parametrize(
    ("noticed_by", "expected"),
    [
        ((WITHIN_THE_PROCESS[0],), True),
        ((WITHIN_THE_PROCESS[0], "-k", "anything"), True),
        ((ONE_BY_ONE[0],), True),
        (("tests/lake/test_apply.py", "-k", "sqlite"), False),
        (("tests/fast/shared/lake/connection/test_spill.py", "-k", "own_folder"), True),
        (("tests/fast/shared/lake/connection/test_spill.py", "-k", "own_folder or a_fork_has"), False),
    ],
)
def test_a_mistake_counts_where_check_has_all_tests_that_may_be_meant(
    noticed_by: tuple[str, ...], expected: bool
) -> None:
    assert Mistake("a", "a mistake", lambda: None, noticed_by).is_noticed_by_check is expected
