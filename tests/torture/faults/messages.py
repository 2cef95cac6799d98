"""Messages that come again, late, in another order, of an earlier life; and messages that nobody ever meant."""

from __future__ import annotations

import json
from collections import Counter

from tests.torture.arena import Arena
from tests.torture.fault import Done
from tests.torture.wire import HUGE, READ_WITHIN_S, everything, send, worked_off


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
    """``count`` messages that are garbage, huge, or of another version, over all topics: dead letters, nobody waits."""
    done: Done = Counter()
    for number in range(count):
        topic = arena.rng.choice(["work", "progress", "destinations"])
        kind, key, value = _poison(arena, number)
        send(arena, f"{arena.prefix}.{topic}", [(key, value)])
        done[kind] += 1
        if number % 50 == 0:
            arena.step()
    arena.wait_until_exact()
    letters = len(everything(arena, f"{arena.prefix}.dead-letter"))
    if letters < count:
        raise AssertionError(f"{count} messages can't be read, but there are only {letters} dead letters")
    done["dead letters"] = letters
    return done


def _poison(arena: Arena, number: int) -> tuple[str, bytes, bytes]:
    key = f"events/tenant-{number % 3}".encode()
    kind = arena.rng.choice(["garbage", "not an object", "another version", "huge", "fields missing"])
    values = {
        "garbage": arena.rng.randbytes(64),
        "not an object": b"[1, 2, 3]",
        "another version": json.dumps({"v": 99, "pipeline": "events", "destination": "tenant-0"}).encode(),
        "huge": b'{"v": 1, "pipeline": "' + b"x" * HUGE + b'"}',
        "fields missing": b'{"v": 1}',
    }
    return kind, key, values[kind]


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
