"""Two controls on one registry: nobody's change is lost, and the topic ends with the registry's last word."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.fast.control.rig import ControlRig, D, entry


@pytest.fixture
def rigs(database_url: str, tmp_path: Path) -> Iterator[tuple[ControlRig, ControlRig]]:
    with (
        closing(ControlRig(tmp_path, url=database_url)) as one,
        closing(ControlRig(tmp_path, url=database_url)) as other,
    ):
        yield one, other


def test_what_one_changes_the_other_shows_and_publishes(rigs: tuple[ControlRig, ControlRig]) -> None:
    one, other = rigs
    one.add("a")
    assert other.http.get(f"{D}/a").status_code == 404
    other.reconciler.refresh()
    assert other.http.get(f"{D}/a").json()["version"] == one.http.get(f"{D}/a").json()["version"]
    assert other.topic.kept["a"] == one.topic.kept["a"]
    other.http.delete(f"{D}/a")
    one.reconciler.refresh()
    assert one.topic.kept["a"] is None


def test_an_etag_of_one_is_good_at_the_other_and_stale_after_its_change(rigs: tuple[ControlRig, ControlRig]) -> None:
    one, other = rigs
    one.add("a")
    seen = {"If-Match": one.http.get(f"{D}/a").headers["etag"]}
    other.reconciler.refresh()
    assert other.http.post(f"{D}/a/pause", headers=seen).status_code == 200
    assert one.http.post(f"{D}/a/resume", headers=seen).status_code == 412


def test_an_id_is_created_once_whoever_is_asked(rigs: tuple[ControlRig, ControlRig]) -> None:
    answers: list[int] = []

    def create(rig: ControlRig) -> None:
        answers.append(rig.http.put(f"{D}/a?check=false", entry("a"), {"If-None-Match": "*"}).status_code)

    threads = [threading.Thread(target=create, args=(each,)) for each in rigs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 412]


def play(rig: ControlRig, rng: Random) -> None:
    for _ in range(250):
        name = f"t{rng.randrange(8)}"
        match rng.randrange(5):
            case 0:
                rig.http.delete(f"{D}/{name}")
            case 1:
                rig.http.post(f"{D}/{name}/{rng.choice(['pause', 'resume', 'stop', 'restart'])}")
            case 2:
                rig.http.post(f"{D}/{name}/reseed")
            case 3:
                rig.reconciler.refresh()
            case _:
                rig.http.put(f"{D}/{name}?check=false", entry(name))


def test_five_hundred_random_changes_at_both_end_with_one_truth(rigs: tuple[ControlRig, ControlRig]) -> None:
    """Adds, removes, lives and switches, all at once: versions are never used twice, generations only grow."""

    threads = [threading.Thread(target=play, args=(rig, Random(seed))) for seed, rig in enumerate(rigs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one, other = rigs
    for rig in rigs:
        rig.reconciler.refresh()
    assert one.registry.destinations() == other.registry.destinations()
    assert one.topic.kept == other.topic.kept
    trail = [(each.version, each.destination, each.generation) for each in one.service.audit_log.entries(10_000)]
    assert len({version for version, _, _ in trail}) == len(trail)
    for name in one.registry.destinations():
        lives = [generation for _, destination, generation in reversed(trail) if destination == name]
        assert lives == sorted(lives)
        assert lives[-1] == one.registry.destinations()[name].generation
