"""Snapshots expire: a destination's beside a transaction that stands still, the source's beside and past who waits."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from contextlib import closing
from typing import Any

from viaduck_client import Client

from tests.torture.fault import Done
from tests.torture.faults.operators import patiently
from tests.torture.faults.processes import ZOMBIE_POINTS, frozen_at
from tests.torture.observer import ENDS_WITHIN_S
from tests.torture.rig import FaultRig
from tests.torture.site import CLICKS, PIPELINE
from tests.world.destination import Destination
from tests.world.holdings import Holdings
from tests.world.upkeep import Chore, Upkeep

KEPT_UP_WITHIN_S = 60.0
STEPS_MISSED = 5
MISSED_WITHIN_S = 60.0
KEPT_SNAPSHOTS = 2


def expired_beside_who_waits(rig: FaultRig, count: int) -> Done:
    """In turn: a destination's lake beside a zombie, the source beside a paused destination, and past one.

    The zombie must not commit (H6); the paused one must find all that it needs; the one that lost its place begins
    anew, and nobody else does.
    """
    done: Done = Counter()
    turns = itertools.cycle((_beside_a_zombie, _beside_a_paused_one, _past_a_paused_one))
    with closing(Client(f"http://127.0.0.1:{rig.site.port}", timeout_s=60.0)) as operator:
        for _, turn in zip(range(count), turns, strict=False):
            done[turn(rig, operator)] += 1
            rig.wait_until_exact()
    return done


def _beside_a_zombie(rig: FaultRig, operator: Client) -> str:
    """All that is older than the newest snapshots goes while an applier holds a transaction that began before them.

    Where it is the topic's, or the point doesn't tell whose, that goes for every lake.
    """
    point = rig.rng.choice(ZOMBIE_POINTS)

    def expire(destination: str) -> None:
        for each in rig.site.destinations:
            if destination in {"", CLICKS, each.id}:
                _expire(rig, operator, each)

    frozen_at(rig, point, expire)
    return f"lakes expired beside a zombie {point}"


def _expire(rig: FaultRig, operator: Client, destination: Destination) -> None:
    """Raises ``AssertionError`` where nothing of an aged lake went."""
    before = rig.site.age(destination)
    steps = ["expire", "clean"]
    asked = patiently(lambda: operator.upkeep(PIPELINE, destination.id, steps=steps))
    ended = operator.wait(PIPELINE, asked["id"], KEPT_UP_WITHIN_S)
    outcomes = {each["step"]: each["outcome"] for each in (ended["upkeep"] or {"steps": []})["steps"]}
    if ended["state"] != "succeeded" or set(outcomes.values()) != {"done"}:
        raise AssertionError(f"upkeep of {destination.id}, which had {before} snapshots: {ended}")


def _beside_a_paused_one(rig: FaultRig, operator: Client) -> str:
    """`viaduck source expire` leaves all that a paused destination needs: it goes on in its life."""
    waiting = _paused(rig, operator)
    ended = _source_expire(rig)
    if ended.returncode != 0:
        raise AssertionError(f"`viaduck source expire` ends with {ended.returncode}: {ended.stdout}{ended.stderr}")
    if _resumed(rig, operator, waiting) != 0:
        raise AssertionError(f"{waiting.id} began anew after an expiry that knew of it: {ended.stdout}")
    return "source expired beside a paused destination"


def _past_a_paused_one(rig: FaultRig, operator: Client) -> str:
    """The owner expires what a paused destination needs: it begins anew (`routing.on_gap: reseed`), nobody else."""
    waiting = _paused(rig, operator)
    missed = Holdings(waiting, rig.site.source.truth)
    position = int(_statuses(rig)[waiting.id]["position"])

    def needs_what_goes() -> bool:
        return missed.first_change(position, rig.site.source.head() - KEPT_SNAPSHOTS) is not None

    if not rig.step_until(needs_what_goes, MISSED_WITHIN_S):
        raise TimeoutError(f"no change for {waiting.id} within {MISSED_WITHIN_S:.0f} s")
    _others_go_on(rig, waiting)
    lives = _lives(rig)
    rig.maintain(Upkeep(Chore.EXPIRE, KEPT_SNAPSHOTS))
    if _resumed(rig, operator, waiting) != 1:
        raise AssertionError(f"{waiting.id} is in life {_lives(rig)[waiting.id]} after {lives[waiting.id]}, past a gap")
    others = {name for name, life in _lives(rig).items() if life != lives[name]} - {waiting.id}
    if others:
        raise AssertionError(f"{sorted(others)} began anew, and only {waiting.id} had lost its place")
    return "source expired past a paused destination"


def _paused(rig: FaultRig, operator: Client) -> Destination:
    """A destination that has been paused since some steps, while all others went on."""
    waiting: Destination = rig.rng.choice(rig.site.destinations)
    patiently(lambda: operator.act(PIPELINE, waiting.id, "pause"))
    for _ in range(STEPS_MISSED):
        rig.step()
    _others_go_on(rig, waiting)
    return waiting


def _others_go_on(rig: FaultRig, waiting: Destination) -> None:
    others = {each.id for each in rig.site.destinations} - {waiting.id}
    rig.healed_s.append(rig.wait_for(others, rig.site.source.head()))


def _resumed(rig: FaultRig, operator: Client, waiting: Destination) -> int:
    """How many lives later the destination is exact again."""
    before = _lives(rig)[waiting.id]
    patiently(lambda: operator.act(PIPELINE, waiting.id, "resume"))
    rig.wait_until_exact()
    return _lives(rig)[waiting.id] - before


def _lives(rig: FaultRig) -> dict[str, int]:
    return {name: int(each["generation"]) for name, each in _statuses(rig).items()}


def _statuses(rig: FaultRig) -> dict[str, dict[str, Any]]:
    return {str(each["id"]): each for each in rig.fleet.destinations()}


def _source_expire(rig: FaultRig) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", "source", "expire", "-c", str(rig.site.file)]
    with rig.observer.making():
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=ENDS_WITHIN_S, env=rig.site.environ
        )
