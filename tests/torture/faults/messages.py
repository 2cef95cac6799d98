"""Messages that come again, late, in another order, of an earlier life; and messages that nobody ever meant."""

from __future__ import annotations

import json
import time
from collections import Counter

from shared.kafka.topics import Topics
from shared.messages import DeadLetter
from tests.torture.arena import Arena
from tests.torture.fault import Done
from tests.torture.forged import FORGERIES, harmful
from tests.torture.lags import Lags
from tests.torture.wire import HUGE, READ_WITHIN_S, Sign, Wire, everything, send, signed, worked_off

STEP_EVERY = 5
"""Messages of poison between two steps of the source."""

FLOWS_AT_MOST = 20
"""Times the wanted count of messages: as long as that they go on where nothing else does."""

PUT_ASIDE_WITHIN_S = 60.0

GARBAGE = ("garbage", "not an object", "another version", "huge", "fields missing")


def replayed(arena: Arena, count: int) -> Done:
    """``count`` items of the past, doubled and shuffled, most of them of an earlier generation: none has an effect."""
    for _ in range(30):
        arena.step()
    arena.wait_until_exact()
    _live_again(arena)
    before = heads(arena)
    past = [item for item in everything(arena, f"{arena.prefix}.work") if item[1] is not None]
    again = [past[arena.rng.randrange(len(past))] for _ in range(count)]
    arena.rng.shuffle(again)
    send(arena, f"{arena.prefix}.work", again)
    worked_off(arena)
    after = heads(arena)
    if after != before:
        raise AssertionError(f"replayed items moved destinations from {before} to {after}")
    for _ in range(5):
        arena.step()
    arena.wait_until_exact()
    return Counter({"replayed": count, "of earlier items": len(past)})


def poisoned(arena: Arena, count: int) -> Done:
    """``count`` messages, garbage, huge, of another version or forged, over all topics: dead letters, nobody waits.

    The source changes meanwhile; they go on until everybody has reached a head that was made while they came.
    """
    topics, sent, done = Topics(arena.prefix), Counter[str](), Counter[str]()
    lags, head = Lags(arena), arena.site.source.head()
    while sent.total() < count or not lags.arrived:
        if sent.total() >= FLOWS_AT_MOST * count:
            moved = f"from {head} to {arena.site.source.head()}"
            raise AssertionError(f"nobody got on while {sent.total()} messages of poison came; the source went {moved}")
        topic = arena.rng.choice([topics.work, topics.progress, topics.destinations, topics.pipelines])
        kind, message, sign = _poison(arena, topic, sent.total())
        send(arena, topic, [message], sign)
        sent[topic] += 1
        done[kind] += 1
        if sent.total() % STEP_EVERY == 0:
            arena.step()
        lags.look()
    arena.wait_until_exact()
    done["dead letters"] = _all_put_aside(arena, sent)
    done["heads reached meanwhile"] = lags.arrived
    return done


def _all_put_aside(arena: Arena, sent: Counter[str]) -> int:
    """Wait until every message of each topic is a dead letter; more than one service may put the same aside."""
    deadline = time.monotonic() + PUT_ASIDE_WITHIN_S
    while missing := sent - _put_aside(arena):
        if time.monotonic() > deadline:
            raise AssertionError(f"messages that can't be read are no dead letters: {dict(missing)}")
        time.sleep(1.0)
    return len(everything(arena, Topics(arena.prefix).dead_letter))


def _put_aside(arena: Arena) -> Counter[str]:
    """How many messages of each topic are dead letters."""
    letters = [DeadLetter.from_bytes(value or b"") for _, value in everything(arena, Topics(arena.prefix).dead_letter)]
    return Counter(topic for topic, _, _ in {(each.topic, each.partition, each.offset) for each in letters})


def _poison(arena: Arena, topic: str, number: int) -> tuple[str, Wire, Sign]:
    """What it is, the message, and its signature: right, so that garbage is read, but for what is forged."""
    name = f"tenant-{number % 3}"
    kind = arena.rng.choice([*GARBAGE, *FORGERIES])
    if kind in FORGERIES:
        forged, harm = harmful(Topics(arena.prefix), name)[topic]
        return kind, (forged.encode(), harm), FORGERIES[kind]
    values = {
        "garbage": arena.rng.randbytes(64),
        "not an object": b"[1, 2, 3]",
        "another version": json.dumps({"v": 99, "pipeline": "events", "destination": "tenant-0"}).encode(),
        "huge": b'{"v": 1, "pipeline": "' + b"x" * HUGE + b'"}',
        "fields missing": b'{"v": 1}',
    }
    return kind, (f"events/{name}".encode(), values[kind]), signed


def _live_again(arena: Arena) -> None:
    """Take every destination out of the file and put it back: each begins a new generation."""
    site, fleet = arena.site, arena.fleet
    site.declare([])
    arena.reload()
    fleet.wait_until("nobody to be declared", lambda: not fleet.destinations(), READ_WITHIN_S)
    site.declare(site.destinations)
    arena.reload()
    arena.wait_until_exact()


def heads(arena: Arena) -> dict[str, int]:
    """The newest snapshot of each destination's lake."""
    return {each.id: arena.site.head_of(each) for each in arena.site.destinations}
