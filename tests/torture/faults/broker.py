"""The broker dies, forgets everything, or loses our topics, under services that run on."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka.admin import AdminClient

from shared.kafka.topics import Topics
from tests.torture.fault import Done
from tests.torture.rig import FaultRig

GONE_WITHIN_S = 10.0


def killed_and_restarted(rig: FaultRig, count: int) -> Done:
    """SIGKILL, a while without a broker, start: what was acknowledged is there."""
    before = rig.fleet.starts()
    for _ in range(count):
        _steps(rig)
        rig.servers.kafka.kill()
        _steps(rig)
        rig.servers.kafka.start()
        _steps(rig)
        rig.wait_until_exact()
    nobody_restarted(rig, before)
    return Counter({"restarts": count})


def wiped(rig: FaultRig, count: int) -> Done:
    """Another cluster, with nothing in it, answers under the same address. Nobody restarts a service."""
    before = rig.fleet.starts()
    for _ in range(count):
        _steps(rig)
        rig.wipe_broker()
        _steps(rig)
        rig.wait_until_exact()
    nobody_restarted(rig, before)
    return Counter({"wipes": count})


def topics_deleted(rig: FaultRig, count: int) -> Done:
    """All topics of ours are deleted. Whoever notices makes them again."""
    admin = AdminClient({**rig.servers.kafka.client()})
    names = list(Topics(rig.prefix).all)
    before = rig.fleet.starts()
    for _ in range(count):
        _steps(rig)
        for future in admin.delete_topics(names, operation_timeout=GONE_WITHIN_S).values():
            future.result(GONE_WITHIN_S)
        _steps(rig)
        rig.wait_until_exact()
    nobody_restarted(rig, before)
    return Counter({"deletions": count})


def nobody_restarted(rig: FaultRig, before: dict[str, int]) -> None:
    """It healed by itself: nobody had to die for it and be started again."""
    restarted = [name for name, starts in rig.fleet.starts().items() if starts > before[name]]
    if restarted:
        raise AssertionError(f"not healed by itself: {', '.join(restarted)} ended and had to be started again")


def _steps(rig: FaultRig) -> None:
    until = time.monotonic() + rig.rng.uniform(0.5, 2.0)
    rig.step_until(lambda: time.monotonic() > until, 10.0)
