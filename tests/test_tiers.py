"""The tiers of tests hold what they promise: each is part of the next, and the last one is everything."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.listing import collected
from tests.one_by_one import ONE_BY_ONE
from tests.tiers import CATALOG, NIGHTLY, TIERS, Guard, Outside, Tier, tier_of, tiers_of


def test_every_place_is_one_of_tests_no_tier_is_empty_and_no_test_is_only_in_the_matrix(
    all_tests: Mapping[str, Tier],
) -> None:
    assert set(all_tests.values()) == set(Tier)
    for place in TIERS:
        assert any(nodeid.startswith(place) for nodeid in all_tests), f"{place} is no test"
    usual = {nodeid.partition("[")[0] for nodeid, tier in all_tests.items() if tier < Tier.MATRIX}
    others = {nodeid.partition("[")[0] for nodeid in all_tests} - usual
    assert others == {place for place in NIGHTLY if "[" not in place}


def test_a_tier_that_is_asked_for_leaves_out_all_others_and_nothing_else(tmp_path: Path) -> None:
    place = "tests/lake/test_locked_catalogs.py"
    everything, *asked = collected(tmp_path, [place], *(["--tier", tier.name.lower(), place] for tier in Tier))
    assert everything
    for tier, found in zip(Tier, asked, strict=True):
        assert found.keys() == {nodeid for nodeid, its in everything.items() if its <= tier}, tier


def test_of_tests_that_differ_in_their_setting_alone_one_is_usual_and_settings_take_turns() -> None:
    settings = list(itertools.product(("sqlite", "postgres"), ("auto", "extension")))
    tests = {
        f"tests/lake/test_apply.py::test_x[{what}-{catalog}-{commit}]": {
            "what": what, CATALOG: catalog, "commit": commit
        }
        for what in range(100)
        for catalog, commit in settings
    }  # fmt: skip
    usual = {nodeid: tier for nodeid, tier in tiers_of(tests).items() if tier < Tier.MATRIX}
    assert [tests[nodeid]["what"] for nodeid in usual] == list(range(100))
    newcomers = [tests[nodeid][CATALOG] for nodeid, tier in usual.items() if tier is Tier.TEST]
    assert set(newcomers) == {"sqlite"}
    assert 10 <= len(newcomers) <= 40
    turns = Counter((tests[nodeid][CATALOG], tests[nodeid]["commit"]) for nodeid in usual)
    assert min(turns[each] for each in settings) >= 10


def test_a_setting_that_is_in_check_stays_there_and_the_others_take_turns_without_it() -> None:
    named = next(nodeid for nodeid in ONE_BY_ONE if nodeid.endswith("[sqlite]"))
    name, _, own = named.removesuffix("]").partition("[")
    tests = {f"{name}[{own}{more}]": {CATALOG: own + more} for more in ("", "-x", "-y", "-z")}
    found = tiers_of({nodeid: {CATALOG: "postgres"} | parameters for nodeid, parameters in tests.items()})
    assert found[named] is Tier.CHECK
    assert sorted(found.values())[1:] in ([Tier.ALL, Tier.MATRIX, Tier.MATRIX], [Tier.MATRIX] * 3)


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
    assert tier_of("tests/lake/test_histories_on_spark.py::test_spark_answers_as_the_functions_do[1]") is Tier.MATRIX
