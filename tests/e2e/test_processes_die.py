"""Any process may die at any instruction: nothing is lost, nothing doubled, and nobody has to help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.cli.runtime.running import RunningViaduck
from tests.e2e.deployment import Deployment, kill, kill_tree
from tests.e2e.phases import phase
from tests.world.replay import SOAK

KILLS = 5 if SOAK else 3
"""Of each service; ``test-all`` has one fewer, since each is a start."""

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
def test_services_and_the_whole_tree_killed_during_a_workload_lose_and_double_nothing(
    deploy: Deploy, seed: int, append_only: bool, whole: bool
) -> None:
    deployment = deploy(seed, append_only=append_only)
    with deployment.run() as viaduck, phase("services are killed one by one"):
        viaduck.wait_until("readiness", viaduck.ready, 180)
        _kill_services(deployment, viaduck, KILLS if whole else KILLS - 1)
        deployment.wait_until_exact(viaduck)
        _change_and_kill_the_tree(deployment, viaduck)
    for number in range(1, TREE_KILLS):
        with deployment.run() as viaduck, phase(f"the tree was killed {number} times"):
            viaduck.wait_until("readiness", viaduck.ready, 180)
            _change_and_kill_the_tree(deployment, viaduck)
    with deployment.run() as viaduck, phase("the tree was killed for the last time"):
        deployment.wait_until_exact(viaduck)
    assert deployment.findings() == []


def _kill_services(deployment: Deployment, viaduck: RunningViaduck, times: int) -> None:
    """Each of them so often, in any order."""
    killed = {"reader": 0, "applier": 0, "control": 0}
    while min(killed.values()) < times:
        deployment.step()
        time.sleep(deployment.rng.uniform(0, 0.6))
        victim = deployment.rng.choice([name for name, count in killed.items() if count < times])
        if deployment.rng.random() < 0.5:
            killed[victim] += kill(viaduck, victim)


def _change_and_kill_the_tree(deployment: Deployment, viaduck: RunningViaduck) -> None:
    for _ in range(4):
        deployment.step()
        time.sleep(deployment.rng.uniform(0, 0.6))
    kill_tree(viaduck)
