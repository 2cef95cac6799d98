"""A service's wall clock jumps an hour forward and back. Wall clocks decide nothing."""

from __future__ import annotations

from collections import Counter

from tests.torture.fault import Done
from tests.torture.points import SERVICES
from tests.torture.rig import FaultRig

JUMPS_S = (3600, -3600, 0)


def jumped(rig: FaultRig, count: int) -> Done:
    done: Done = Counter()
    for number in range(count):
        service = SERVICES[number % len(SERVICES)]
        for jump_s in JUMPS_S:
            rig.points.set_clock(service, jump_s)
            rig.step()
            rig.step()
        rig.wait_until_exact()
        done[f"{service} there and back"] += 1
    return done
