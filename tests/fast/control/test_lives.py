"""Destinations come and go for days: control keeps of those that went what the registry keeps, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from shared.contracts.messages import ItemKind, Outcome
from tests.fast.control.examples import progress
from tests.fast.control.rig import ControlRig, D
from tests.fast.growth import sizes

LIVES = 60
REGISTERED = ("._keeper._held", "Reconciler._held", "_registry._known")
"""Of an id that was removed the registry knows the life it had, or its next one could be taken for that."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path)) as rig:
        yield rig


def life(rig: ControlRig, name: str) -> None:
    """Of a destination that is seeded, gets rows, fails, and is removed; a late answer comes after that."""
    rig.add(name)
    rig.said(progress(Outcome.APPLIED, name, kind=ItemKind.SEED, position=3))
    rig.said(progress(Outcome.APPLIED, name, position=5))
    rig.said(progress(Outcome.FAILED, name, position=5))
    assert rig.http.delete(f"{D}/{name}").status_code == 204
    rig.said(progress(Outcome.APPLIED, name, position=6))


def held(rig: ControlRig) -> dict[str, int]:
    parts = (rig.reconciler, rig.status_store, rig.service, rig.discovery, rig.history, rig.tokens, rig.guard,
             rig.incidents, rig.pipeline_store, rig.operations, rig.http.app.state.once,
             rig.http.app.state.answers, rig.http.app.state.streams)  # fmt: skip
    found = {path: size for part in parts for path, size in sizes(part).items()}
    return {path: size for path, size in found.items() if not path.endswith(REGISTERED) and ".config." not in path}


def test_of_destinations_that_went_nothing_stays_but_what_the_registry_keeps(rig: ControlRig) -> None:
    rig.add("stays")
    for number in range(LIVES):
        life(rig, f"life-{number}")
        rig.now += timedelta(hours=1)
        rig.reconciler.announce_all()
    rig.now += timedelta(days=2)
    rig.reconciler.announce_all()
    rig.add("last")
    assert {path: size for path, size in held(rig).items() if size > LIVES // 2} == {}
    assert set(rig.reconciler.held) == {"stays", "last", *(f"life-{number}" for number in range(LIVES))}


def test_lives_of_one_id_take_no_more_room_than_one(rig: ControlRig) -> None:
    for _ in range(LIVES // 3):
        life(rig, "again")
    assert set(rig.reconciler.held) == {"again"}
    assert {path: size for path, size in held(rig).items() if size > LIVES // 4} == {}
