"""Any process may die at any instruction: nothing is lost, nothing doubled, and nobody has to help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, kill, kill_tree
from tests.world.replay import SOAK

KILLS = 5 if SOAK else 3
TREE_KILLS = 3 if SOAK else 2

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    made: list[Deployment] = []

    def make(seed: int, *, append_only: bool = False) -> Deployment:
        made.append(Deployment(tmp_path, seed, append_only=append_only))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "append_only"), [(11, False), (12, True)])
def test_services_killed_during_a_workload_lose_and_double_nothing(
    deploy: Deploy, seed: int, append_only: bool
) -> None:
    deployment = deploy(seed, append_only=append_only)
    killed = {"reader": 0, "applier": 0, "control": 0}
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, 180)
        while min(killed.values()) < KILLS:
            deployment.step()
            time.sleep(deployment.rng.uniform(0, 0.6))
            victim = deployment.rng.choice([name for name, times in killed.items() if times < KILLS])
            if deployment.rng.random() < 0.5:
                killed[victim] += kill(viaduck, victim)
        deployment.wait_until_exact(viaduck)
    assert deployment.findings() == []


@pytest.mark.timeout(900)
def test_the_whole_tree_killed_and_started_again_loses_and_doubles_nothing(deploy: Deploy) -> None:
    deployment = deploy(13)
    for _ in range(TREE_KILLS):
        with deployment.run() as viaduck:
            viaduck.wait_until("readiness", viaduck.ready, 180)
            for _ in range(4):
                deployment.step()
                time.sleep(deployment.rng.uniform(0, 0.6))
            kill_tree(viaduck)
    with deployment.run() as viaduck:
        deployment.wait_until_exact(viaduck)
    assert deployment.findings() == []
