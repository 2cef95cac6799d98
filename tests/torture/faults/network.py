"""The network between services and what they talk to: slow, cut, reset, silent, broken off in mid-message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.servers.proxy import Proxy
from tests.torture.arena import Arena
from tests.torture.fault import Done

LATENCY_S = 0.05
MOST_BYTES = 20_000
STEPS = 3


def disturbed(arena: Arena, count: int) -> Done:
    """Each kind of trouble in turn, in front of one server after the other; twenty-four are all."""
    servers = _servers(arena)
    done: Done = Counter()
    for number in range(count):
        turn, which = divmod(number, len(TROUBLES))
        where, proxy = servers[(turn + which) % len(servers)]
        kind, trouble = TROUBLES[which]
        trouble(arena, proxy)
        proxy.heal()
        arena.wait_until_exact()
        done[f"{where} {kind}"] += 1
    return done


def _servers(arena: Arena) -> list[tuple[str, Proxy]]:
    """What services talk to: ``postgres`` is the tenants' catalogs."""
    assert arena.servers.kafka.proxy is not None, "the broker needs a faulty way in"
    return [
        ("kafka", arena.servers.kafka.proxy),
        ("postgres", arena.proxy),
        ("source", arena.source_proxy),
        ("registry", arena.registry_proxy),
    ]


def _slow(arena: Arena, proxy: Proxy) -> None:
    proxy.latency(LATENCY_S)
    _steps(arena)


def _silent(arena: Arena, proxy: Proxy) -> None:
    """Half-open: connections are there, and nothing comes."""
    proxy.silence()
    _steps(arena)


def _again_and_again(end: Callable[[Proxy], None]) -> Callable[[Arena, Proxy], None]:
    def trouble(arena: Arena, proxy: Proxy) -> None:
        for _ in range(STEPS):
            end(proxy)
            arena.step()

    return trouble


def _broken_off(arena: Arena, proxy: Proxy) -> None:
    """The last byte that gets through lies anywhere in a message."""
    for _ in range(STEPS):
        proxy.cut_after(arena.rng.randrange(1, MOST_BYTES), arena.rng.choice(["server", "client"]))
        arena.step()


def _refused(arena: Arena, proxy: Proxy) -> None:
    proxy.refuse()
    _steps(arena)


def _steps(arena: Arena) -> None:
    for _ in range(STEPS):
        arena.step()


TROUBLES: list[tuple[str, Callable[[Arena, Proxy], None]]] = [
    ("broken off", _broken_off),
    ("reset", _again_and_again(Proxy.reset)),
    ("silent", _silent),
    ("cut", _again_and_again(Proxy.cut)),
    ("refused", _refused),
    ("slow", _slow),
]
