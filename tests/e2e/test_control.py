"""Operators on running services: a tenant's whole life over REST, the health of lakes, and a source that expires."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.lake.catalog.reader import CatalogReader
from shared.lake.upkeep.retention import snapshots_since
from tests.e2e.deployment import Deployment
from tests.e2e.parts import Parts
from tests.e2e.phases import phase
from tests.world.destination import Destination
from tests.world.holdings import Holdings

WITHIN_S = 120.0


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path, 33, parts=Parts(sections={"health": {"every_seconds": 1}}))
    yield made
    made.close()


class Rest:
    """What an operator sends, and what the destination shows then."""

    def __init__(self, url: str, viaduck: RunningViaduck, destination: Destination) -> None:
        self._http = httpx.Client(base_url=f"{url}/v1/pipelines/events", timeout=30.0)
        self._viaduck, self._destination = viaduck, destination
        self._path = f"/destinations/{destination.id}"

    def close(self) -> None:
        self._http.close()

    def put(self) -> httpx.Response:
        lake = self._destination.lake
        body = {"routing_value": self._destination.value, "catalog": lake.catalog, "data_path": lake.data_path,
                "schema": self._destination.schema}  # fmt: skip
        return self._http.put(self._path, json=body)

    def post(self, action: str, body: object = None) -> httpx.Response:
        answer = self._http.post(f"{self._path}/{action}", json=body)
        assert answer.is_success, answer.text
        return answer

    def replay(self) -> Any:
        return self._http.post("/work:replay", json={}).json()

    def delete(self, data: str) -> httpx.Response:
        return self._http.delete(self._path, params={"data": data})

    def show(self) -> Any:
        answer = self._http.get(self._path)
        return answer.json() if answer.is_success else None

    def wait(self, what: str, **wanted: Any) -> None:
        self._viaduck.wait_until(what, lambda: wanted.items() <= (self.show() or {}).items(), WITHIN_S)

    def finish(self, begun: httpx.Response) -> Any:
        assert begun.status_code == 202, begun.text
        place = begun.headers["location"]
        url = self._http.base_url.copy_with(path=place)
        self._viaduck.wait_until(place, lambda: self._http.get(url).json()["finished_at"] is not None, WITHIN_S)
        return self._http.get(url).json()

    def history(self) -> list[Any]:
        return list(self._http.get(f"{self._path}/history").json()["items"])


def _replay_everything_three_times(deployment: Deployment, viaduck: RunningViaduck, rest: Rest) -> None:
    """However often the work topic is sent again, no destination gains a snapshot."""
    before = [_snapshots(each) for each in deployment.destinations]
    finished = _finished(viaduck)
    sent = sum(rest.replay()["sent"] for _ in range(3))
    assert sent > 3 * len(deployment.destinations)
    viaduck.wait_until("the end of what was sent again", lambda: _finished(viaduck) > finished, WITHIN_S)
    settled = [0.0, 0.0]

    def quiet() -> bool:
        settled.append(_finished(viaduck))
        return settled[-1] == settled[-2] == settled[-3]

    viaduck.wait_until("nothing more to be done", quiet, WITHIN_S, every_s=1.0)
    assert [_snapshots(each) for each in deployment.destinations] == before


def _snapshots(destination: Destination) -> int:
    with closing(CatalogReader(ResolvedLake(destination.lake.catalog, destination.lake.metadata_schema))) as catalog:
        return catalog.head().snapshot


def _finished(viaduck: RunningViaduck) -> float:
    """Work items that the applier is done with, by a job or without one."""
    counters = ("viaduck_outcomes_total", "viaduck_screened_items_total")
    lines = viaduck.metrics().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(counters))


def _expire(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", "source", "expire", "-c", str(deployment.file), *words]
    return subprocess.run(command, env=deployment.environ, capture_output=True, text=True, timeout=120, check=False)


def _expire_beside_a_stopped_one(deployment: Deployment, viaduck: RunningViaduck) -> None:
    """Nothing goes that it needs, until it is to be ignored: then it parks while the others move."""
    *others, stopped = deployment.destinations
    with closing(Rest(viaduck.url, viaduck, stopped)) as rest:
        rest.post("stop")
        position = rest.show()["position"]
        missed = Holdings(stopped, deployment.source.truth)
        _step_to(deployment, position + 2)
        while missed.first_change(position, deployment.source.head() - 1) is None:
            deployment.step()
        deployment.wait_until_exact_for(viaduck, *(each.id for each in others))
        viaduck.wait_until("control's look at the source", lambda: _expire(deployment).returncode == 0, WITHIN_S)
        assert _retained(deployment)[0] == position
        gone = _expire(deployment, "--ignore-destination", stopped.id)
        assert (gone.returncode, _retained(deployment)[0] > position) == (0, True), gone.stdout + gone.stderr
        rest.post("restart")
        rest.wait("a lost history", state="parked")
        assert rest.show()["error"]["type"] == "history_expired"
        _step_to(deployment, deployment.source.head() + 1)
        deployment.wait_until_exact_for(viaduck, *(each.id for each in others))
        assert rest.finish(rest.post("reseed"))["state"] == "succeeded"
        deployment.wait_until_exact(viaduck)


def _step_to(deployment: Deployment, snapshot: int) -> None:
    """Not every step of a random history makes a snapshot."""
    while deployment.source.head() < snapshot:
        deployment.step()


def _retained(deployment: Deployment) -> list[int]:
    lake = deployment.source.lake
    with closing(CatalogReader(ResolvedLake(lake.catalog, lake.metadata_schema))) as catalog:
        return [each.id for each in snapshots_since(catalog, 0, 10_000)]


def _lives(deployment: Deployment, viaduck: RunningViaduck, rest: Rest) -> None:
    """A tenant that is not in the file is added, paused, reseeded, rewound, removed and added again."""
    added = rest.put()
    assert (added.status_code, added.json()["generation"]) == (201, 1), added.text
    deployment.step()
    deployment.wait_until_exact(viaduck)

    rest.post("pause")
    rest.wait("a pause", state="paused")
    before = rest.history()
    deployment.step()
    then = deployment.source.head()
    assert rest.history() == before
    rest.post("resume")
    deployment.wait_until_exact(viaduck)

    assert rest.finish(rest.post("reseed"))["state"] == "succeeded"
    rest.wait("the second life", state="running", generation=2)
    deployment.step()
    rewound = rest.finish(rest.post("rewind", {"to": then}))
    assert (rewound["state"], rewound["to"], rewound["generation"]) == ("succeeded", then, 3)
    deployment.wait_until_exact(viaduck)

    _replay_everything_three_times(deployment, viaduck, rest)

    assert rest.delete("keep").status_code == 204
    assert rest.show() is None
    deployment.step()
    assert (back := rest.put()).status_code == 201, back.text
    assert back.json()["generation"] == 4
    deployment.wait_until_exact(viaduck)

    dropped = rest.finish(rest.delete("drop"))
    assert (dropped["state"], rest.show()) == ("succeeded", None)
    assert rest.put().json()["generation"] == 6
    deployment.wait_until_exact(viaduck)
    lives = [each["generation"] for each in reversed(rest.history()) if each["kind"] in ("seed", "drop")]
    assert lives == [1, 2, 3, 4, 5, 6]


def _health_is_told(deployment: Deployment, viaduck: RunningViaduck) -> None:
    head, truth = deployment.source.head(), deployment.source.truth
    wanted = {each.id: sum(truth.slice(head, each.value).values()) for each in deployment.destinations}

    def told() -> bool:
        found = httpx.get(f"{viaduck.url}/v1/pipelines/events/health", timeout=30.0).json()
        rows = {each["id"]: each["rows"] for each in found["items"]}
        return found["source"]["oldest_snapshot"] == 0 and rows == wanted

    viaduck.wait_until("the health of all lakes", told, WITHIN_S)
    exposed = viaduck.metrics()
    assert all(f'viaduck_lake_files{{destination="{each}"' in exposed for each in wanted)
    assert "viaduck_source_lake_snapshots{" in exposed


@pytest.mark.timeout(900)
def test_a_tenant_lives_through_it_all_the_health_of_lakes_is_told_and_the_source_expires_beside_a_stopped_one(
    deployment: Deployment,
) -> None:
    tenant = deployment.destinations[-1]
    deployment.declare(deployment.destinations[:-1])
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, 180)
        with phase("a tenant lives"), closing(Rest(viaduck.url, viaduck, tenant)) as rest:
            _lives(deployment, viaduck, rest)
            assert deployment.findings() == []
        with phase("health is told"):
            _health_is_told(deployment, viaduck)
        with phase("the source expires"):
            _expire_beside_a_stopped_one(deployment, viaduck)
            assert deployment.findings() == []
