"""Messages that come again, late, in another order, of an earlier life; and messages that nobody ever meant."""

from __future__ import annotations

import json
import time
from collections import Counter

from shared.contracts.messages import DeadLetter, Progress
from shared.contracts.reports import parse_progress
from shared.kafka.topics import Topics
from tests.torture.fault import Done
from tests.torture.forged import FORGERIES, harmful
from tests.torture.lags import Lags
from tests.torture.rig import FaultRig
from tests.torture.wire import HUGE, READ_WITHIN_S, Sign, Wire, everything, send, signed, worked_off

STEP_EVERY = 5
"""Messages of poison between two steps of the source."""

FLOWS_AT_MOST = 20
"""Times the wanted count of messages: as long as that they go on where nothing else does."""

PUT_ASIDE_WITHIN_S = 60.0

STEPS_REPLAYED = 30
ANSWERS_PER_ITEM = 2
BURST = 150
"""Old messages between two steps of the source."""

GARBAGE = ("garbage", "not an object", "another version", "huge", "fields missing")


def replayed(rig: FaultRig, count: int) -> Done:
    """``count`` items of the past, doubled and shuffled, most of them of an earlier generation: none has an effect.

    Then as many again and twice as many old answers among them, while the source changes: nobody is kept waiting.
    """
    for _ in range(min(STEPS_REPLAYED, count // 3)):
        rig.step()
    rig.wait_until_exact()
    _live_again(rig)
    before = heads(rig)
    past = [item for item in everything(rig, f"{rig.prefix}.work") if item[1] is not None]
    again = [past[rig.rng.randrange(len(past))] for _ in range(count)]
    rig.rng.shuffle(again)
    send(rig, f"{rig.prefix}.work", again)
    worked_off(rig)
    after = heads(rig)
    if after != before:
        raise AssertionError(f"replayed items moved destinations from {before} to {after}")
    beside = _replayed_beside_changes(rig, count)
    rig.wait_until_exact()
    return Counter({"replayed": count, "of earlier items": len(past)}) + beside


def _replayed_beside_changes(rig: FaultRig, count: int) -> Done:
    """They go on until everybody has reached a head that was made while they came. ``Lags`` judges who starves."""
    topics, done = Topics(rig.prefix), Counter[str]()
    items = [each for each in everything(rig, topics.work) if each[1] is not None]
    answers = [each for each in everything(rig, topics.progress) if _is_answer(each)]
    lags, head = Lags(rig), rig.site.source.head()
    while done.total() < (1 + ANSWERS_PER_ITEM) * count or not lags.arrived:
        if done.total() >= FLOWS_AT_MOST * count:
            moved = f"from {head} to {rig.site.source.head()}"
            raise AssertionError(f"nobody got on while {done.total()} old messages came; the source went {moved}")
        burst = rig.rng.choices(["item", *["answer"] * ANSWERS_PER_ITEM], k=BURST)
        for topic, kind, past in ((topics.work, "item", items), (topics.progress, "answer", answers)):
            send(rig, topic, rig.rng.choices(past, k=burst.count(kind)))
            done[f"{kind}s beside changes"] += burst.count(kind)
        rig.step()
        lags.look()
    done["heads reached meanwhile"] = lags.arrived
    return done


def _is_answer(message: Wire) -> bool:
    return message[1] is not None and isinstance(parse_progress(message[1]), Progress)


def poisoned(rig: FaultRig, count: int) -> Done:
    """``count`` messages, garbage, huge, of another version or forged, over all topics: dead letters, nobody waits.

    The source changes meanwhile; they go on until everybody has reached a head that was made while they came.
    """
    topics, sent, done = Topics(rig.prefix), Counter[str](), Counter[str]()
    lags, head = Lags(rig), rig.site.source.head()
    while sent.total() < count or not lags.arrived:
        if sent.total() >= FLOWS_AT_MOST * count:
            moved = f"from {head} to {rig.site.source.head()}"
            raise AssertionError(f"nobody got on while {sent.total()} messages of poison came; the source went {moved}")
        topic = rig.rng.choice([topics.work, topics.progress, topics.destinations, topics.pipelines])
        kind, message, sign = _poison(rig, topic, sent.total())
        send(rig, topic, [message], sign)
        sent[topic] += 1
        done[kind] += 1
        if sent.total() % STEP_EVERY == 0:
            rig.step()
        lags.look()
    rig.wait_until_exact()
    done["dead letters"] = _all_put_aside(rig, sent)
    done["heads reached meanwhile"] = lags.arrived
    return done


def _all_put_aside(rig: FaultRig, sent: Counter[str]) -> int:
    """Wait until every message of each topic is a dead letter; more than one service may put the same aside."""
    deadline = time.monotonic() + PUT_ASIDE_WITHIN_S
    while missing := sent - _put_aside(rig):
        if time.monotonic() > deadline:
            raise AssertionError(f"messages that can't be read are no dead letters: {dict(missing)}")
        time.sleep(1.0)
    return len(everything(rig, Topics(rig.prefix).dead_letter))


def _put_aside(rig: FaultRig) -> Counter[str]:
    """How many messages of each topic are dead letters."""
    letters = [DeadLetter.from_bytes(value or b"") for _, value in everything(rig, Topics(rig.prefix).dead_letter)]
    return Counter(topic for topic, _, _ in {(each.topic, each.partition, each.offset) for each in letters})


def _poison(rig: FaultRig, topic: str, number: int) -> tuple[str, Wire, Sign]:
    """What it is, the message, and its signature: right, so that garbage is read, but for what is forged."""
    name = f"tenant-{number % 3}"
    kind = rig.rng.choice([*GARBAGE, *FORGERIES])
    if kind in FORGERIES:
        forged, harm = harmful(Topics(rig.prefix), name)[topic]
        return kind, (forged.encode(), harm), FORGERIES[kind]
    values = {
        "garbage": rig.rng.randbytes(64),
        "not an object": b"[1, 2, 3]",
        "another version": json.dumps({"v": 99, "pipeline": "events", "destination": "tenant-0"}).encode(),
        "huge": b'{"v": 1, "pipeline": "' + b"x" * HUGE + b'"}',
        "fields missing": b'{"v": 1}',
    }
    return kind, (f"events/{name}".encode(), values[kind]), signed


def _live_again(rig: FaultRig) -> None:
    """Take every destination out of the file and put it back: each begins a new generation."""
    site, fleet = rig.site, rig.fleet
    site.declare([])
    rig.reload()
    fleet.wait_until("nobody to be declared", lambda: not fleet.destinations(), READ_WITHIN_S)
    site.declare(site.destinations)
    rig.reload()
    rig.wait_until_exact()


def heads(rig: FaultRig) -> dict[str, int]:
    """The newest snapshot of each destination's lake."""
    return {each.id: rig.site.head_of(each) for each in rig.site.destinations}
