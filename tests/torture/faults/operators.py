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


def tenants_added_and_removed(arena: Arena, count: int) -> Done:
    """``count`` adds and removes over REST, of random tenants at random moments; each add is a life of its own.

    Removals keep the data: the specification, which has to explain what was seen, knows of no drop.
    """
    done: Done = Counter()
    movable = _handed_over(arena)
    there: set[str] = set()
    with closing(Client(f"http://127.0.0.1:{arena.site.port}", timeout_s=60.0)) as operator:
        for number in range(count):
            victim = arena.rng.choice(movable)
            if victim.id in there:
                operator.remove(PIPELINE, victim.id)
                done["removed"] += 1
            else:
                _add(arena, operator, victim)
                done["added"] += 1
            there ^= {victim.id}
            for _ in range(arena.rng.randint(0, 2)):
                arena.step()
            if number % SETTLE_EVERY == SETTLE_EVERY - 1:
                _wait_for(arena, there)
        for each in movable:
            if each.id not in there:
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


def _add(arena: Arena, operator: Client, tenant: Destination) -> None:
    entry = {"routing_value": tenant.value, **arena.site.parts.entry(tenant.id, tenant.lake), "schema": tenant.schema}
    operator.put(PIPELINE, tenant.id, entry, check=arena.rng.random() < 0.5)


def _wait_for(arena: Arena, there: set[str]) -> None:
    arena.healed_s.append(arena.wait_for(there, arena.site.source.head()))
