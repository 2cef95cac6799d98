"""A topic that lands as a table: appliers die and freeze over its records, and its owner does all that owners do."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from confluent_kafka import Producer

from tests.torture.clicks import EXPIRED
from tests.torture.fault import Done
from tests.torture.faults.operators import patiently
from tests.torture.faults.processes import (
    HELD_FOR_S,
    PASSED_WITHIN_S,
    SESSION_IS_OVER_S,
    ZOMBIE_POINTS,
    pass_point,
)
from tests.torture.points import Deed, Point
from tests.torture.rig import HEALED_WITHIN_S, FaultRig

PARKED_WITHIN_S = 60.0
PAUSED_WITHIN_S = 30.0
WRITE_EVERY_S = (0.02, 0.2)
MOST_TRANSACTIONS = 6
ABORTED = 0.4

Play = Callable[[FaultRig], str]
"""Returns what it did."""


def landed(rig: FaultRig, count: int) -> Done:
    """Each deed in turn, ``count`` in all, while the lake's source stands still: who passes a point lands records.

    Between two rounds of deeds appliers are killed until each point has had its turn.
    """
    done: Done = Counter()
    points = itertools.cycle(rig.rng.sample(list(Point), len(Point)))
    kills: list[Play] = [partial(_killed, points=points)] * len(Point)
    deeds = itertools.cycle([kills[0], *DEEDS, *kills[1:]])
    for deed in itertools.islice(deeds, count):
        done[deed(rig)] += 1
        rig.wait_until_exact()
    return done


def _killed(rig: FaultRig, points: Iterator[Point]) -> str:
    """SIGKILL at the next point: the whole applier, or just the process there."""
    point = next(points)
    pass_point(rig, point, rig.rng.choice([Deed.KILL_ALL, Deed.KILL_ONE]), partial(_write, rig))
    return f"killed {point}"


def _zombie(rig: FaultRig) -> str:
    """SIGSTOP past the session timeout, another takes over, SIGCONT: it must not commit its records a second time."""
    point = rig.rng.choice(ZOMBIE_POINTS)
    passed = pass_point(rig, point, Deed.FREEZE_ALL, partial(_write, rig))
    frozen = next(member for member in rig.fleet.appliers if member.pid == passed.pid)
    over = time.monotonic() + SESSION_IS_OVER_S
    rig.go_on_until(lambda: time.monotonic() > over, 2 * SESSION_IS_OVER_S, partial(_write, rig))
    if not rig.site.is_held(rig.site.clicks, HELD_FOR_S):  # a COMMIT that stands half-way lets nobody else write
        rig.clicks.settle(HEALED_WITHIN_S)
    if frozen.pid != passed.pid:
        raise AssertionError(f"{frozen.name} died while it was frozen: it is no zombie")
    frozen.send(signal.SIGCONT)
    return f"zombie {point}"


def _in_transactions(rig: FaultRig) -> str:
    """Some commit and some abort, and one stays open while others write behind it: nobody may read past it."""
    clicks = rig.clicks
    one, other = (clicks.producer(transactional_id=f"{rig.site.topic}-{number}") for number in (1, 2))
    for each in (one, other):
        each.init_transactions(HEALED_WITHIN_S)
    one.begin_transaction()
    _produce(rig, one)
    for _ in range(rig.rng.randint(1, MOST_TRANSACTIONS)):
        other.begin_transaction()
        _produce(rig, other)
        _end(rig, other)
        clicks.write()
        _pause(rig)
    _end(rig, one)
    return "transactions"


def _produce(rig: FaultRig, producer: Producer) -> None:
    for _ in range(rig.rng.randint(1, 5)):
        rig.clicks.produce(producer)
    producer.flush(HEALED_WITHIN_S)


def _end(rig: FaultRig, producer: Producer) -> None:
    if rig.rng.random() < ABORTED:
        producer.abort_transaction(HEALED_WITHIN_S)
    else:
        producer.commit_transaction(HEALED_WITHIN_S)


def _grown(rig: FaultRig) -> str:
    """A partition more, which lands from its first record on."""
    rig.clicks.grow()
    _write_for_a_while(rig)
    return "partition added"


def _recreated(rig: FaultRig) -> str:
    """Deleted and made again: the destination is parked with what it has, until an operator begins its next life."""
    rig.clicks.write()
    rig.clicks.recreate()
    _write_for_a_while(rig)
    _stays_parked(rig)
    return "topic deleted and made again"


def _outlived(rig: FaultRig) -> str:
    """Retention takes records that a paused destination has not read; it is told which, and goes on from no guess."""
    clicks = rig.clicks
    patiently(lambda: clicks.act("pause"))
    rig.fleet.wait_until(f"{rig.site.clicks.id} to be paused", lambda: _is(rig, "paused"), PAUSED_WITHIN_S)
    _write_for_a_while(rig)
    partition = rig.rng.randrange(clicks.partitions)
    clicks.write_to(partition)
    end = clicks.forget(partition)
    clicks.expected_park = EXPIRED
    patiently(lambda: clicks.act("resume"))
    message = _stays_parked(rig)
    if f"partition {partition}" not in message:
        raise AssertionError(f"offsets up to {end} of partition {partition} are gone, and it is said: {message}")
    return "retention past a paused destination"


def _stays_parked(rig: FaultRig) -> str:
    """Parked for what happened, and no record lands meanwhile. Returns what is said."""
    status = rig.clicks.wait_until_parked(PARKED_WITHIN_S)
    before = rig.clicks.newest()
    _write_for_a_while(rig)
    if (now := rig.clicks.newest()) != before:
        raise AssertionError(f"parked for {status['error']['type']}, and its lake went from {before} to {now}")
    rig.clicks.begin_again()
    return str(status["error"]["message"])


def _is(rig: FaultRig, state: str) -> bool:
    status = rig.clicks.status()
    return status is not None and status["state"] == state


def _write_for_a_while(rig: FaultRig) -> None:
    until = time.monotonic() + rig.rng.uniform(0.5, 2.0)
    rig.go_on_until(lambda: time.monotonic() > until, PASSED_WITHIN_S, partial(_write, rig))


def _write(rig: FaultRig) -> None:
    rig.clicks.write()
    _pause(rig)


def _pause(rig: FaultRig) -> None:
    time.sleep(rig.rng.uniform(*WRITE_EVERY_S))


DEEDS: tuple[Play, ...] = (_zombie, _in_transactions, _grown, _recreated, _outlived)
