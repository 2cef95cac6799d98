"""Destinations come and go for days: control keeps of those that went what the registry keeps, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from services.control.model import lifecycle
from services.control.operations.destination_entry import Entry
from services.control.operations.destination_service import Done
from shared.contracts.messages import ItemKind, Outcome
from tests.fast.control.examples import START, problem, progress
from tests.fast.control.rig import ControlRig, D, entry, offered
from tests.fast.growth import sizes

LIVES = 60
DAY_OF_LIVES, AT_ONCE, DAY = 10_000, 100, timedelta(days=1)
MOST = 2 * AT_ONCE
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


@pytest.mark.slow
def test_a_day_of_ten_thousand_lives_leaves_nothing_but_what_has_a_bound(rig: ControlRig) -> None:
    """Without requests, of which each life above has its own: what they leave shows after sixty."""
    rig.clock = rig.history._clock = lambda: (rig.now - START).total_seconds()
    rig.add("stays")
    rig.reconciler.announce_all()
    for first in range(0, DAY_OF_LIVES, AT_ONCE):
        day_of_lives(rig, [f"life-{number}" for number in range(first, first + AT_ONCE)])
        rig.now += DAY * AT_ONCE / DAY_OF_LIVES
    rig.now += DAY  # so long it is repeated that a destination is gone
    rig.reconciler.announce_all()
    assert len(rig.reconciler.held) == 1 + DAY_OF_LIVES
    found = held(rig)
    assert found["StatusStore._destinations"] == 1
    assert {path: size for path, size in found.items() if size > MOST} == {}


def day_of_lives(rig: ControlRig, names: list[str]) -> None:
    """The lives of many at once: seeded, lagging, failing, offered again and again, removed, and answered for late."""
    made = rig.service.put_all(
        [(name, Entry.model_validate(entry(name))) for name in names], "olga", all_or_nothing=True
    )
    assert all(isinstance(each, Done) and each.created for each in made)
    rig.service.act(names[0], "reseed", "olga")
    for name in names:
        generation = 2 if name == names[0] else 1
        rig.status_store.note(progress(Outcome.APPLIED, name, kind=ItemKind.SEED, position=3, generation=generation))
        rig.status_store.note(
            progress(
                Outcome.FAILED, name, position=3, error=problem(), generation=generation, applier=f"applier {name}"
            )
        )
    rig.looked(4, dict.fromkeys(names, 3))
    rig.offers([offered(f"nobody {name}", 1) for name in names])
    rig.history.feel()
    rig.reconciler.change(lambda held, revision: [lifecycle.remove(held[name], revision) for name in names], "olga")
    for name in names:
        rig.status_store.note(progress(Outcome.PARKED, name, position=4, error=problem(retryable=False)))
    rig.looked(5)
    rig.reconciler.react()
    rig.service.close_operations()
    rig.incidents.flush()


def test_lives_of_one_id_take_no_more_room_than_one(rig: ControlRig) -> None:
    for _ in range(LIVES // 3):
        life(rig, "again")
    assert set(rig.reconciler.held) == {"again"}
    assert {path: size for path, size in held(rig).items() if size > LIVES // 4} == {}
