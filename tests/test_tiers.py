"""The tiers of tests hold what they promise: each is part of the next, and the last one is everything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tiers import TIERS, Guard, Outside, Tier, tier_of

ROOT = Path(__file__).resolve().parents[1]


def collected(*arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-n", "0", *arguments]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in said.stdout.splitlines() if "::" in line}


def test_every_place_is_one_of_tests_and_no_tier_is_empty_or_everything() -> None:
    everything = collected()
    tiers = [{nodeid for nodeid in everything if tier_of(nodeid) <= tier} for tier in Tier]
    assert set() < tiers[0] < tiers[1] < tiers[2] == everything
    for place in TIERS:
        assert any(nodeid.startswith(place) for nodeid in everything), f"{place} is no test"


def test_a_tier_that_is_asked_for_leaves_out_all_others_and_nothing_else() -> None:
    place = "tests/fast/reader/planner"
    everything = collected(place)
    for tier in (Tier.CHECK, Tier.TEST):
        chosen = {nodeid for nodeid in everything if tier_of(nodeid) <= tier}
        assert collected("--tier", tier.name.lower(), place) == chosen


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    guard.hold()
    yield guard
    guard.release()


def with_a_socket(use: Callable[[socket.socket], None]) -> None:
    with socket.socket() as one:
        use(one)


REACHES: dict[str, Callable[[], object]] = {
    "a process": lambda: subprocess.run([sys.executable, "--version"], capture_output=True),
    "a process by the shell": lambda: os.system("true"),
    "a fork": os.fork,
    "a socket that listens": lambda: with_a_socket(lambda one: one.bind(("127.0.0.1", 0))),
    "a socket that connects": lambda: with_a_socket(lambda one: one.connect(("127.0.0.1", 9))),
}


@pytest.mark.parametrize("name", sorted(REACHES))
def test_a_guarded_test_reaches_no_socket_and_no_process(name: str, guard: Guard) -> None:
    with pytest.raises(Outside):
        REACHES[name]()
    assert guard.seen
    guard.release()


def test_a_guard_that_is_released_forbids_nothing(guard: Guard) -> None:
    guard.release()
    socket.create_server(("127.0.0.1", 0)).close()
    assert not guard.seen


def test_of_the_places_that_fit_the_longest_counts() -> None:
    assert tier_of("tests/e2e/test_up.py::test_anything") is Tier.ALL
    assert tier_of("tests/lake/test_apply.py::test_anything[sqlite]") is Tier.TEST
    assert tier_of("tests/lake/test_apply.py::test_anything[postgres]") is Tier.ALL
