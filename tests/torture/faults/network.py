"""The network between services and what they talk to: slow, cut, reset, silent, broken off in mid-message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.servers.proxy import Proxy
from tests.torture.fault import Done
from tests.torture.rig import FaultRig

LATENCY_S = 0.05
MOST_BYTES = 20_000
STEPS = 3


def disturbed(rig: FaultRig, count: int) -> Done:
    """Each kind of trouble in turn, in front of one server after the other; twenty-four are all."""
    servers = _servers(rig)
    done: Done = Counter()
    for number in range(count):
        turn, which = divmod(number, len(TROUBLES))
        where, proxy = servers[(turn + which) % len(servers)]
        kind, trouble = TROUBLES[which]
        trouble(rig, proxy)
        proxy.heal()
        rig.wait_until_exact()
        rig.wait_until_ready()
        done[f"{where} {kind}"] += 1
    return done


def _servers(rig: FaultRig) -> list[tuple[str, Proxy]]:
    """What services talk to: ``postgres`` is the tenants' catalogs."""
    assert rig.servers.kafka.proxy is not None, "the broker needs a faulty way in"
    return [
        ("kafka", rig.servers.kafka.proxy),
        ("postgres", rig.proxy),
        ("source", rig.source_proxy),
        ("registry", rig.registry_proxy),
    ]


def _slow(rig: FaultRig, proxy: Proxy) -> None:
    proxy.latency(LATENCY_S)
    _steps(rig)


def _silent(rig: FaultRig, proxy: Proxy) -> None:
    """Half-open: connections are there, and nothing comes."""
    proxy.silence()
    _steps(rig)


def _again_and_again(end: Callable[[Proxy], None]) -> Callable[[FaultRig, Proxy], None]:
    def trouble(rig: FaultRig, proxy: Proxy) -> None:
        for _ in range(STEPS):
            end(proxy)
            rig.step()

    return trouble


def _broken_off(rig: FaultRig, proxy: Proxy) -> None:
    """The last byte that gets through lies anywhere in a message."""
    for _ in range(STEPS):
        proxy.cut_after(rig.rng.randrange(1, MOST_BYTES), rig.rng.choice(["server", "client"]))
        rig.step()


def _refused(rig: FaultRig, proxy: Proxy) -> None:
    proxy.refuse()
    _steps(rig)


def _steps(rig: FaultRig) -> None:
    for _ in range(STEPS):
        rig.step()


TROUBLES: list[tuple[str, Callable[[FaultRig, Proxy], None]]] = [
    ("broken off", _broken_off),
    ("reset", _again_and_again(Proxy.reset)),
    ("silent", _silent),
    ("cut", _again_and_again(Proxy.cut)),
    ("refused", _refused),
    ("slow", _slow),
]
