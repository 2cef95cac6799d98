"""Control killed, or its registry stopped, for a while: the data plane goes on, what is gone is named, and it heals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.catalog.reader import CatalogReader
from tests.e2e.deployment import Deployment, reached
from tests.e2e.parts import Parts
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.torture.fleet import Fleet
from tests.world.destination import Destination
from tests.world.holdings import Holdings

SEED = 42

AWAY_S = float(os.environ.get("VIADUCK_AWAY_S", "8"))
"""How long; an operator's minute takes as long in every run."""

FRESH_S = 30.0
"""In which a commit is at every tenant whom it concerns, on a busy machine."""

HEALED_S = 60.0
READY_S = 180.0


class Scene:
    """Services one by one, tenants' lakes in a folder, and a registry that alone is on Postgres."""

    def __init__(self, folder: Path, kafka: Kafka, postgres: Postgres) -> None:
        database = f"registry_{SEED}_{os.getpid()}"
        postgres.create_database(database)
        parts = Parts(kafka=kafka, sections={"registry": {"url_env": "REGISTRY_URL"}})
        parts.environ["REGISTRY_URL"] = postgres.uri(database)
        self.deployment = Deployment(folder, SEED, parts=parts)
        self.fleet = Fleet(
            [self.deployment.file], folder / "logs", self.deployment.port, self.deployment.environ, appliers=1
        )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.deployment.port}", timeout=30.0)

    def begin(self) -> None:
        self.fleet.wait_until("everybody at the head", self.exact, READY_S)

    def exact(self) -> bool:
        """By control's word."""
        head, wanted = self.deployment.source.head(), {each.id for each in self.deployment.destinations}
        return reached(self.fleet.destinations(), wanted, head)

    def goes_on_for(self, seconds: float) -> list[float]:
        """Change the source meanwhile; seconds until each change was in every lake, by the lakes' own stamps."""
        until = time.monotonic() + seconds
        ages: list[float] = []
        while time.monotonic() < until or len(ages) < 3:
            self.deployment.step()
            ages.append(self.fleet.wait_until("a change in every lake", lambda: not self.behind(), FRESH_S))
        return ages

    def behind(self) -> list[str]:
        head, truth = self.deployment.source.head(), self.deployment.source.truth
        return [
            each.id
            for each in self.deployment.destinations
            if Holdings(each, truth).first_change(through(each), head) is not None
        ]

    def ready(self) -> httpx.Response:
        return self.http.get("/readyz")

    def pause(self) -> httpx.Response:
        return self.http.post(f"/v1/pipelines/events/destinations/{self.deployment.destinations[0].id}/pause")

    def close(self) -> None:
        self.http.close()
        self.deployment.close()


def through(destination: Destination) -> int:
    """The newest stamp's."""
    with closing(CatalogReader(ResolvedLake(destination.lake.catalog))) as catalog:
        (newest,) = catalog.history(f'"destination": "{destination.id}"', 1)
    return int(json.loads(newest.extra_info)["through"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, postgres: Postgres) -> Iterator[Scene]:
    """Each test leaves everybody there, running and at the head."""
    with closing(Scene(tmp_path_factory.mktemp("scene"), kafka, postgres)) as scene, scene.fleet:
        scene.begin()
        yield scene


@pytest.mark.timeout(900)
def test_while_control_is_dead_every_change_still_arrives(scene: Scene) -> None:
    control = scene.fleet.members["control"]
    control.held = True
    assert control.send(signal.SIGKILL)
    scene.goes_on_for(AWAY_S)
    with pytest.raises(httpx.TransportError):
        scene.ready()

    control.held = False
    scene.fleet.wait_until("control back, and aware of everybody", scene.exact, READY_S)
    assert scene.ready().status_code == 200
    assert scene.deployment.findings() == []


@pytest.mark.timeout(900)
def test_while_the_registry_is_stopped_only_changes_by_operators_wait(scene: Scene, postgres: Postgres) -> None:
    postgres.stop()
    try:
        scene.goes_on_for(AWAY_S)
        told, refused = scene.ready(), scene.pause()
        scene.fleet.wait_until("lists that are answered from memory and go on", scene.exact, FRESH_S)
    finally:
        postgres.start()
    checks = told.json()["checks"]
    assert told.status_code == 503
    assert [name for name, wrong in checks.items() if wrong] == ["registry"]
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["type"].endswith("#unavailable")
    assert refused.json()["hint"]

    scene.fleet.wait_until("readiness", lambda: scene.ready().status_code == 200, HEALED_S)
    states = {each["id"]: each["state"] for each in scene.fleet.destinations()}
    assert set(states.values()) == {"running"}, "what was refused was not done by half"
    assert scene.pause().json()["state"] == "paused"
    assert scene.http.post(f"/v1/pipelines/events/destinations/{next(iter(states))}/resume").is_success
    scene.goes_on_for(0.0)
    assert scene.deployment.findings() == []
