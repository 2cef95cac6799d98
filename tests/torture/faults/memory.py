"""Control loses its memory: its registry is lost or an older one comes back, or the broker is wiped as it starts."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from viaduck_client import Client

from tests.e2e.deployment import reached
from tests.torture.fault import Done
from tests.torture.faults.catalogs import unwritable
from tests.torture.faults.operators import add, declared_again, handed_over, patiently
from tests.torture.observer import CONTROL
from tests.torture.rig import HEALED_WITHIN_S, READY_WITHIN_S, FaultRig
from tests.torture.site import PIPELINE
from tests.world.destination import Destination

PARKED_WITHIN_S = 60.0
DIES_WITHIN_S = 10.0


def lost(rig: FaultRig, count: int) -> Done:
    """Each loss in turn, ``count`` in all, while tenants are there that only the registry and the topics know of.

    Afterwards all are there who were, in no older life, and whoever was parked is shown as such, unless it could go on:
    a change so small that the catalog takes it needs no data path.
    """
    done: Done = Counter()
    movable = handed_over(rig)
    with closing(Client(f"http://127.0.0.1:{rig.site.port}", timeout_s=60.0)) as operator:
        for each in movable:
            add(rig, operator, each)
        rig.wait_until_exact()
        for number in range(count):
            kind, lose = LOSSES[number % len(LOSSES)]
            _lose(rig, operator, movable, lose)
            done[kind] += 1
    declared_again(rig)
    return done


Lose = Callable[[FaultRig, Callable[[], None]], None]
"""Takes what operators do between the moment to which control falls back, where it does so, and the loss."""


def _lose(rig: FaultRig, operator: Client, movable: list[Destination], lose: Lose) -> None:
    victim = rig.rng.choice(movable)
    reseeded, removed = (rig.rng.choice([each for each in movable if each is not victim]) for _ in range(2))
    before: dict[str, int] = {}

    others = [each for each in rig.site.destinations if each.id != victim.id]

    def meanwhile() -> None:
        patiently(lambda: operator.reseed(PIPELINE, reseeded.id))
        patiently(lambda: operator.remove(PIPELINE, removed.id))
        rig.step()
        patiently(lambda: add(rig, operator, removed))  # its next life
        _rest(rig, others)
        before.update(_lives(rig))

    with unwritable(victim):
        rig.step_until(lambda: _is_parked(rig, victim), PARKED_WITHIN_S)
        if not _is_parked(rig, victim):
            raise AssertionError(f"{victim.id} can't be written, and is not shown as parked")
        lose(rig, meanwhile)
        rig.step()
        _rest(rig, others)
        head = rig.site.source.head()
        rig.fleet.wait_until(
            f"{victim.id} to be shown as parked, or to get to snapshot {head}",
            lambda: _is_parked(rig, victim) or reached(rig.fleet.destinations(), {victim.id}, head),
            HEALED_WITHIN_S,
        )
        rig.observer.ask_status()
        _must_be_there(rig, before)
    patiently(lambda: operator.act(PIPELINE, victim.id, "resume"))
    rig.wait_until_exact()
    rig.observer.ask_status()


def _registry_lost(rig: FaultRig, meanwhile: Callable[[], None]) -> None:
    """An empty database is where the registry was; what operators did counts."""
    meanwhile()
    with _without_control(rig):
        rig.site.lose_registry()


def _older_registry(rig: FaultRig, meanwhile: Callable[[], None]) -> None:
    """A copy from before what operators did comes back, as from a backup. The topics know what came since."""
    with _without_control(rig):
        rig.site.back_up_registry()
    meanwhile()
    with _without_control(rig):
        rig.site.restore_registry()


def _broker_wiped(rig: FaultRig, meanwhile: Callable[[], None]) -> None:
    """Control starts on a broker that holds nothing of what was ever said."""
    meanwhile()
    with _without_control(rig):
        rig.wipe_broker()


@contextmanager
def _without_control(rig: FaultRig) -> Iterator[None]:
    """It dies at once, and is started again at the end."""
    control = rig.fleet.members[CONTROL]
    control.held = True
    control.send(signal.SIGKILL)
    control.wait(DIES_WITHIN_S)
    yield
    control.held = False
    rig.fleet.wait_until("control to answer", control.is_alive, READY_WITHIN_S)


LOSSES: tuple[tuple[str, Lose], ...] = (
    ("registry restored from an older copy", _older_registry),
    ("broker wiped and control restarted", _broker_wiped),
    ("registry lost", _registry_lost),
)


def _rest(rig: FaultRig, wanted: list[Destination]) -> None:
    rig.healed_s.append(rig.wait_for({each.id for each in wanted}, rig.site.source.head()))


def _must_be_there(rig: FaultRig, before: dict[str, int]) -> None:
    now = _lives(rig)
    wrong = sorted(id for id in before if now.get(id, 0) < before[id])  # noqa: A001
    if wrong:
        raise AssertionError(f"{wrong} are gone, or in an older life: {before} before, {now} now")


def _lives(rig: FaultRig) -> dict[str, int]:
    return {each["id"]: int(each["generation"]) for each in rig.fleet.destinations()}


def _is_parked(rig: FaultRig, victim: Destination) -> bool:
    return any(each["id"] == victim.id and each["state"] == "parked" for each in rig.fleet.destinations())
