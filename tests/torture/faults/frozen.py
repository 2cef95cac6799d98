"""A service stands still while something that it needs says nothing, and then the broker has forgotten everything."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.torture.fault import Done
from tests.torture.faults.broker import nobody_restarted
from tests.torture.fleet import Member
from tests.torture.observer import BROKER, CONTROL, REGISTRY, SOURCE
from tests.torture.rig import FaultRig

SHORTEST_S, LONGEST_S = 5.0, 30.0
"""Beyond every session timeout, and shorter than the minute within which all has to heal."""


def frozen_in_silence(rig: FaultRig, count: int) -> Done:
    """SIGSTOP of a service while broker, source or registry is silent, SIGCONT, then a wipe of the broker."""
    done: Done = Counter()
    before = rig.fleet.starts()
    for number in range(count):
        member = rig.rng.choice(list(rig.fleet.members.values()))
        what = list(SILENCES)[number % len(SILENCES)]
        _freeze(rig, member, what, rig.rng.uniform(SHORTEST_S, LONGEST_S))
        rig.wipe_broker()
        rig.step()
        rig.wait_until_exact()
        rig.wait_until_ready()
        rig.observer.ask_status()
        done[f"{member.name.partition('-')[0]} frozen while {what} was silent"] += 1
    nobody_restarted(rig, before)
    return done


def _freeze(rig: FaultRig, member: Member, what: str, seconds: float) -> None:
    with _silent(rig, what):
        member.send(signal.SIGSTOP)
        with rig.observer.frozen(member):
            _steps(rig, seconds)
            if member.name != CONTROL:
                rig.observer.ask_status()
        member.send(signal.SIGCONT)
        _steps(rig, 1.0)


@contextmanager
def _silent(rig: FaultRig, what: str) -> Iterator[None]:
    begin, end = SILENCES[what]
    begin(rig)
    try:
        with rig.observer.silent(what):
            yield
    finally:
        end(rig)


def _pause_broker(rig: FaultRig) -> None:
    rig.servers.kafka.nodes[0].freeze()


def _thaw_broker(rig: FaultRig) -> None:
    rig.servers.kafka.nodes[0].thaw()


Act = Callable[[FaultRig], None]

SILENCES: dict[str, tuple[Act, Act]] = {
    BROKER: (_pause_broker, _thaw_broker),
    SOURCE: (lambda rig: rig.source_proxy.silence(), lambda rig: rig.source_proxy.heal()),
    REGISTRY: (lambda rig: rig.registry_proxy.silence(), lambda rig: rig.registry_proxy.heal()),
}


def _steps(rig: FaultRig, seconds: float) -> None:
    until = time.monotonic() + seconds
    rig.step_until(lambda: time.monotonic() > until, 2 * LONGEST_S)
