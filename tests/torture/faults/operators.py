"""Operators who add and remove tenants all the time, while the source changes."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

from shared.client import Client
from tests.torture.arena import Arena
from tests.torture.fault import Done
from tests.torture.wire import READ_WITHIN_S
from tests.world.destination import Destination

PIPELINE = "events"
SETTLE_EVERY = 25
DROPPED = 1 / 3
"""Of the removals: those that take the data away."""

DROPPED_WITHIN_S = 60.0


def tenants_added_and_removed(arena: Arena, count: int) -> Done:
    """``count`` adds and removes over REST, of random tenants at random moments; each add is a life of its own.

    A third of the removals take the data away, while items of that life may still be under way. Where the data was
    kept, the next life replaces it.
    """
    done: Done = Counter()
    movable = _handed_over(arena)
    there: set[str] = set()
    dropping: dict[str, str] = {}
    with closing(Client(f"http://127.0.0.1:{arena.site.port}", timeout_s=60.0)) as operator:
        for number in range(count):
            victim = arena.rng.choice(movable)
            if victim.id in there:
                done[_remove(arena, operator, victim, dropping)] += 1
            else:
                _await_drop(operator, victim, dropping)
                _add(arena, operator, victim)
                done["added"] += 1
            there ^= {victim.id}
            for _ in range(arena.rng.randint(0, 2)):
                arena.step()
            if number % SETTLE_EVERY == SETTLE_EVERY - 1:
                _wait_for(arena, there)
        for each in movable:
            if each.id not in there:
                _await_drop(operator, each, dropping)
                _add(arena, operator, each)
    arena.wait_until_exact()
    done["lives of one tenant, the most"] = max(int(each["generation"]) for each in arena.fleet.destinations())
    _declared_again(arena)
    return done


def _handed_over(arena: Arena) -> list[Destination]:
    """All but one tenant leave the file, which nobody can change over REST."""
    kept, *movable = arena.site.destinations
    arena.site.declare([kept])
    arena.reload()
    arena.fleet.wait_until(
        "one tenant in the file",
        lambda: [each["id"] for each in arena.fleet.destinations()] == [kept.id],
        READ_WITHIN_S,
    )
    return movable


def _declared_again(arena: Arena) -> None:
    """The file takes them over, lives and all."""
    arena.site.declare(arena.site.destinations)
    arena.reload()
    arena.fleet.wait_until(
        "all tenants in the file",
        lambda: all(each["managed_by"] == "file" for each in arena.fleet.destinations()),
        READ_WITHIN_S,
    )


def _remove(arena: Arena, operator: Client, tenant: Destination, dropping: dict[str, str]) -> str:
    """Ask for it, and say what was asked for. What is to be dropped goes on until ``_await_drop``."""
    operation = operator.remove(PIPELINE, tenant.id, drop=arena.rng.random() < DROPPED)
    if operation is None:
        return "removed"
    dropping[tenant.id] = operation["id"]
    return "removed with its data"


def _await_drop(operator: Client, tenant: Destination, dropping: dict[str, str]) -> None:
    """While a tenant's data is being taken away it can't be added again."""
    under_way = dropping.pop(tenant.id, None)
    if under_way is None:
        return
    ended = operator.wait(PIPELINE, under_way, DROPPED_WITHIN_S)
    if ended["state"] != "succeeded":
        raise AssertionError(f"the data of {tenant.id} was not dropped within {DROPPED_WITHIN_S:.0f} s: {ended}")


def _add(arena: Arena, operator: Client, tenant: Destination) -> None:
    entry = {"routing_value": tenant.value, **arena.site.parts.entry(tenant.id, tenant.lake), "schema": tenant.schema}
    operator.put(PIPELINE, tenant.id, entry, check=arena.rng.random() < 0.5)


def _wait_for(arena: Arena, there: set[str]) -> None:
    arena.healed_s.append(arena.wait_for(there, arena.site.source.head()))
