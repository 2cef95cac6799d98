"""Operators who add and remove tenants all the time, while the source changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from viaduck_client import Client, Unavailable

from tests.torture.fault import Done
from tests.torture.rig import FaultRig
from tests.torture.site import PIPELINE
from tests.torture.wire import READ_WITHIN_S
from tests.world.destination import Destination

SETTLE_EVERY = 25
DROPPED = 1 / 3
"""Of the removals: those that take the data away."""

DROPPED_WITHIN_S = 60.0
TAKEN_WITHIN_S = 60.0
AGAIN_S = 0.5


def tenants_added_and_removed(rig: FaultRig, count: int) -> Done:
    """``count`` adds and removes over REST, of random tenants at random moments; each add is a life of its own.

    A third of the removals take the data away, while items of that life may still be under way. Where the data was
    kept, the next life replaces it.
    """
    done: Done = Counter()
    movable = handed_over(rig)
    there: set[str] = set()
    dropping: dict[str, str] = {}
    with closing(Client(f"http://127.0.0.1:{rig.site.port}", timeout_s=60.0)) as operator:
        for number in range(count):
            victim = rig.rng.choice(movable)
            if victim.id in there:
                done[remove(rig, operator, victim, dropping)] += 1
            else:
                await_drop(operator, victim, dropping)
                add(rig, operator, victim)
                done["added"] += 1
            there ^= {victim.id}
            for _ in range(rig.rng.randint(0, 2)):
                rig.step()
            if number % SETTLE_EVERY == SETTLE_EVERY - 1:
                _wait_for(rig, there)
        for each in movable:
            if each.id not in there:
                await_drop(operator, each, dropping)
                add(rig, operator, each)
    rig.wait_until_exact()
    done["lives of one tenant, the most"] = max(int(each["generation"]) for each in rig.fleet.destinations())
    declared_again(rig)
    return done


def handed_over(rig: FaultRig) -> list[Destination]:
    """All but one tenant leave the file, which nobody can change over REST."""
    kept, *movable = rig.site.destinations
    rig.site.declare([kept])
    rig.reload()
    rig.fleet.wait_until(
        "one tenant in the file",
        lambda: [each["id"] for each in rig.fleet.destinations()] == [kept.id],
        READ_WITHIN_S,
    )
    return movable


def declared_again(rig: FaultRig) -> None:
    """The file takes them over, lives and all."""
    rig.site.declare(rig.site.destinations)
    rig.reload()
    rig.fleet.wait_until(
        "all tenants in the file",
        lambda: all(each["managed_by"] == "file" for each in rig.fleet.destinations()),
        READ_WITHIN_S,
    )


def remove(rig: FaultRig, operator: Client, tenant: Destination, dropping: dict[str, str]) -> str:
    """Ask for it, and say what was asked for. What is to be dropped goes on until ``await_drop``."""
    operation = operator.remove(PIPELINE, tenant.id, drop=rig.rng.random() < DROPPED)
    if operation is None:
        return "removed"
    dropping[tenant.id] = operation["id"]
    return "removed with its data"


def await_drop(operator: Client, tenant: Destination, dropping: dict[str, str]) -> None:
    """While a tenant's data is being taken away it can't be added again."""
    under_way = dropping.pop(tenant.id, None)
    if under_way is None:
        return
    ended = operator.wait(PIPELINE, under_way, DROPPED_WITHIN_S)
    if ended["state"] != "succeeded":
        raise AssertionError(f"the data of {tenant.id} was not dropped within {DROPPED_WITHIN_S:.0f} s: {ended}")


def add(rig: FaultRig, operator: Client, tenant: Destination) -> None:
    entry = {"routing_value": tenant.value, **rig.site.parts.entry(tenant.id, tenant.lake), "schema": tenant.schema}
    operator.put(PIPELINE, tenant.id, entry, check=rig.rng.random() < 0.5)


T = TypeVar("T")


def patiently(act: Callable[[], T]) -> T:
    """Do what an operator does, and again while control says that it can't now: it has just been started."""
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while True:
        try:
            return act()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


def _wait_for(rig: FaultRig, there: set[str]) -> None:
    rig.healed_s.append(rig.wait_for(there, rig.site.source.head()))
