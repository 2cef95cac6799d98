"""The fault matrix in small: each fault a few times, with a fixed seed, on real Kafka and Postgres.

``make torture`` plays it in full. After every fault everybody is at the head by itself, and every new snapshot of every
destination holds exactly what its stamp says; at the end the older ones still do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.model.judge import judge
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.torture.faults.all import FAULTS
from tests.torture.faults.processes import coming_and_going, frozen_at
from tests.torture.points import Point
from tests.torture.rig import FaultRig, Servers
from tests.torture.verdict import again
from tests.torture.witness import trace

SEED = 6
"""With which the topic of the site is routed, and its records have keys (``tests/torture/site.py``)."""

PACE_S = (0.1, 1.0)
"""Half as many steps as in the full matrix: each is work for every service, and snapshots for the oracle."""

PATIENCE = 0.3
"""Fewer steps also where something takes long, as a session does that has to be over: the first ones are what passes a
point or meets a trouble."""

FEWER = (1, 3, 2)
"""How many appliers there are in turn: each that joins is a start of Spark."""

READ_AGAIN = {False: 20, True: 40}
"""Snapshots of each destination, from its first to its newest, in ``test-all`` and in the matrix."""

ELSEWHERE = {"zombie", "scale", "lost-commit", "broker-wipe", "freeze"}
"""Faults that the incidents below play; ``freeze`` ends with a wipe."""


@pytest.fixture(scope="module")
def servers(kafka: Kafka, postgres: Postgres) -> Servers:
    return Servers(kafka, postgres)


@pytest.fixture(scope="module")
def rig(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    """One site for all faults, so that each meets what the ones before have left."""
    with FaultRig(tmp_path_factory.mktemp("rig"), SEED, servers, pace_s=PACE_S, patience=PATIENCE) as rig:
        yield rig


@contextmanager
def repeatable(name: str, count: int | None = None) -> Iterator[None]:
    """A failure tells the command that plays the fault alone, on a site that no other has met before."""
    try:
        yield
    except Exception as error:
        error.add_note(f"again, on a site of its own: {again(name, count or FAULTS[name].brief, SEED)}")
        raise


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_nothing_is_lost_or_doubled_under(name: str, rig: FaultRig, whole: bool) -> None:
    fault = FAULTS[name]
    count = fault.count(whole=whole)
    with repeatable(name, count):
        done = fault.play(rig, count)
        rig.wait_until_exact()
        assert done.total() >= count
        assert rig.findings(shown=fault.shown, new=True) == []


class TestIncidents:
    """What has happened to the best-known lakehouse sink on Kafka does not happen here."""

    @pytest.mark.timeout(600)
    def test_files_referenced_twice_after_a_retry(self, rig: FaultRig) -> None:
        """A commit whose outcome was unknown is looked up, not repeated."""
        with repeatable("lost-commit"):
            FAULTS["lost-commit"].play(rig, 2)
            rig.wait_until_exact()
            assert rig.findings(new=True) == []
            assert rig.site.files_referenced_twice() == []

    @pytest.mark.timeout(600)
    def test_zombie_coordinator(self, rig: FaultRig) -> None:
        """Whoever wakes up with an open transaction after others have gone on can't commit it.

        Its own transaction, which has not begun to commit, locks nobody (``frozen_at`` looks). Another tenant of the
        same job may stand in the middle of its COMMIT.
        """
        with repeatable("zombie"):
            frozen_at(rig, Point.BEFORE_COMMIT)
            assert rig.findings(new=True) == []

    @pytest.mark.timeout(600)
    def test_a_commit_that_stands_half_way(self, rig: FaultRig) -> None:
        """Its server ends it, and its tenant goes on with another applier before the frozen one wakes up."""
        with repeatable("zombie"):
            assert frozen_at(rig, Point.WITHIN_BATCH) == set()
            assert rig.findings(new=True) == []

    @pytest.mark.timeout(600)
    def test_two_coordinators_after_one_rebalance(self, rig: FaultRig) -> None:
        """Two readers plan everything twice while appliers come and go: twice the messages, once the rows."""
        second = rig.fleet.add_reader()
        with repeatable("scale"):
            coming_and_going(rig, FAULTS["scale"].brief, FEWER)
            rig.fleet.dismiss(second)
            assert rig.findings(new=True) == []

    @pytest.mark.timeout(600)
    def test_silent_stall_after_the_cluster_was_recreated(self, rig: FaultRig) -> None:
        """Everybody begins anew on the new cluster, in a minute and without a restart, also whoever stood still before
        while the broker said nothing."""
        with repeatable("freeze"):
            FAULTS["freeze"].play(rig, 1)
            assert rig.findings(new=True) == []


@pytest.mark.timeout(600)
def test_snapshots_that_are_left_are_still_what_they_were(rig: FaultRig, whole: bool) -> None:
    """After each fault only the rows of new snapshots were read. The full matrix reads all of them again at the end."""
    assert rig.findings(shown=False, most=READ_AGAIN[whole]) == []


@pytest.mark.timeout(600)
def test_the_specification_explains_all_that_was_seen(rig: FaultRig, tmp_path: Path) -> None:
    assert judge([trace(rig)], tmp_path) == [None]
