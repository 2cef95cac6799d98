"""Two controls on one registry: nobody's change is lost, and the topic ends with the registry's last word."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.fast.control.office import D, Office, entry
from tests.servers.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def offices(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Office, Office]]:
    url = f"sqlite:///{tmp_path}/registry.sqlite"
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        server.create_database("several")
        url = server.uri("several").replace("postgresql://", "postgresql+psycopg://")
    with closing(Office(tmp_path, url=url)) as one, closing(Office(tmp_path, url=url)) as other:
        yield one, other
    if request.param == "postgres":
        server.drop_database("several")


def test_what_one_changes_the_other_shows_and_publishes(offices: tuple[Office, Office]) -> None:
    one, other = offices
    one.add("a")
    assert other.http.get(f"{D}/a").status_code == 404
    other.keeper.refresh()
    assert other.http.get(f"{D}/a").json()["version"] == one.http.get(f"{D}/a").json()["version"]
    assert other.topic.kept["a"] == one.topic.kept["a"]
    other.http.delete(f"{D}/a")
    one.keeper.refresh()
    assert one.topic.kept["a"] is None


def test_an_etag_of_one_is_good_at_the_other_and_stale_after_its_change(offices: tuple[Office, Office]) -> None:
    one, other = offices
    one.add("a")
    seen = {"If-Match": one.http.get(f"{D}/a").headers["etag"]}
    other.keeper.refresh()
    assert other.http.post(f"{D}/a/pause", headers=seen).status_code == 200
    assert one.http.post(f"{D}/a/resume", headers=seen).status_code == 412


def test_an_id_is_created_once_whoever_is_asked(offices: tuple[Office, Office]) -> None:
    answers: list[int] = []

    def create(office: Office) -> None:
        answers.append(office.http.put(f"{D}/a?check=false", entry("a"), {"If-None-Match": "*"}).status_code)

    threads = [threading.Thread(target=create, args=(each,)) for each in offices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 412]


def play(office: Office, rng: Random) -> None:
    for _ in range(250):
        name = f"t{rng.randrange(8)}"
        match rng.randrange(5):
            case 0:
                office.http.delete(f"{D}/{name}")
            case 1:
                office.http.post(f"{D}/{name}/{rng.choice(['pause', 'resume', 'stop', 'restart'])}")
            case 2:
                office.http.post(f"{D}/{name}/reseed")
            case 3:
                office.keeper.refresh()
            case _:
                office.http.put(f"{D}/{name}?check=false", entry(name))


def test_five_hundred_random_changes_at_both_end_with_one_truth(offices: tuple[Office, Office]) -> None:
    """Adds, removes, lives and switches, all at once: versions are never used twice, generations only grow."""

    threads = [threading.Thread(target=play, args=(office, Random(seed))) for seed, office in enumerate(offices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one, other = offices
    for office in offices:
        office.keeper.refresh()
    assert one.registry.destinations() == other.registry.destinations()
    assert one.topic.kept == other.topic.kept
    trail = [(each.version, each.destination, each.generation) for each in one.desk.trail.entries(10_000)]
    assert len({version for version, _, _ in trail}) == len(trail)
    for name in one.registry.destinations():
        lives = [generation for _, destination, generation in reversed(trail) if destination == name]
        assert lives == sorted(lives)
        assert lives[-1] == one.registry.destinations()[name].generation
