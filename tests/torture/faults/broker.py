"""The broker dies, forgets everything, or loses our topics, under services that run on."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka.admin import AdminClient

from shared.kafka.topics import Topics
from tests.torture.arena import Arena
from tests.torture.fault import Done

GONE_WITHIN_S = 10.0


def killed_and_restarted(arena: Arena, count: int) -> Done:
    """SIGKILL, a while without a broker, start: what was acknowledged is there."""
    before = arena.fleet.starts()
    for _ in range(count):
        _steps(arena)
        arena.servers.kafka.kill()
        _steps(arena)
        arena.servers.kafka.start()
        _steps(arena)
        arena.wait_until_exact()
    _nobody_restarted(arena, before)
    return Counter({"restarts": count})


def wiped(arena: Arena, count: int) -> Done:
    """Another cluster, with nothing in it, answers under the same address. Nobody restarts a service."""
    before = arena.fleet.starts()
    for _ in range(count):
        _steps(arena)
        arena.servers.kafka.wipe()
        _steps(arena)
        arena.wait_until_exact()
    _nobody_restarted(arena, before)
    return Counter({"wipes": count})


def topics_deleted(arena: Arena, count: int) -> Done:
    """All topics of ours are deleted. Whoever notices makes them again."""
    admin = AdminClient({**arena.servers.kafka.client()})
    names = list(Topics(arena.prefix).all)
    before = arena.fleet.starts()
    for _ in range(count):
        _steps(arena)
        for future in admin.delete_topics(names, operation_timeout=GONE_WITHIN_S).values():
            future.result(GONE_WITHIN_S)
        _steps(arena)
        arena.wait_until_exact()
    _nobody_restarted(arena, before)
    return Counter({"deletions": count})


def _nobody_restarted(arena: Arena, before: dict[str, int]) -> None:
    """It healed by itself: nobody had to die for it and be started again."""
    restarted = [name for name, starts in arena.fleet.starts().items() if starts > before[name]]
    if restarted:
        raise AssertionError(f"not healed by itself: {', '.join(restarted)} ended and had to be started again")


def _steps(arena: Arena) -> None:
    until = time.monotonic() + arena.rng.uniform(0.5, 2.0)
    arena.step_until(lambda: time.monotonic() > until, 10.0)
