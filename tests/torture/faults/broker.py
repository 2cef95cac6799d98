"""The broker dies, forgets everything, or loses our topics, under services that run on."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka.admin import AdminClient

from tests.torture.arena import Arena
from tests.torture.fault import Done

GONE_WITHIN_S = 10.0


def killed_and_restarted(arena: Arena, count: int) -> Done:
    """SIGKILL, a while without a broker, start: what was acknowledged is there."""
    for _ in range(count):
        _steps(arena)
        arena.servers.kafka.kill()
        _steps(arena)
        arena.servers.kafka.start()
        _steps(arena)
        arena.wait_until_exact()
    return Counter({"restarts": count})


def wiped(arena: Arena, count: int) -> Done:
    """Another cluster, with nothing in it, answers under the same address. Nobody restarts a service."""
    before = _starts(arena)
    for _ in range(count):
        _steps(arena)
        arena.servers.kafka.wipe()
        _steps(arena)
        arena.wait_until_exact()
    return Counter({"wipes": count, "services restarted": _starts(arena) - before})


def topics_deleted(arena: Arena, count: int) -> Done:
    """All topics of ours are deleted. Whoever notices makes them again."""
    admin = AdminClient({**arena.servers.kafka.client()})
    names = [f"{arena.prefix}.{kind}" for kind in ("work", "progress", "destinations", "dead-letter")]
    before = _starts(arena)
    for _ in range(count):
        _steps(arena)
        for future in admin.delete_topics(names, operation_timeout=GONE_WITHIN_S).values():
            future.result(GONE_WITHIN_S)
        _steps(arena)
        arena.wait_until_exact()
    return Counter({"deletions": count, "services restarted": _starts(arena) - before})


def _starts(arena: Arena) -> int:
    return sum(member.starts for member in arena.fleet.members.values())


def _steps(arena: Arena) -> None:
    until = time.monotonic() + arena.rng.uniform(0.5, 2.0)
    arena.step_until(lambda: time.monotonic() > until, 10.0)
