"""Appliers that die at a named instruction, freeze and wake up as zombies, come and go."""

from __future__ import annotations

import signal
import time
from collections import Counter

from tests.torture.arena import READY_WITHIN_S, Arena
from tests.torture.fault import Done
from tests.torture.fleet import Member
from tests.torture.points import Deed, Point

PASSED_WITHIN_S = 120.0
SETTLE_EVERY = 8
SESSION_IS_OVER_S = 12.0
"""Longer than any session timeout here: the group has given the frozen one up."""

ZOMBIE_POINTS = (Point.AFTER_READ, Point.AFTER_FENCE, Point.BEFORE_COMMIT, Point.DURING_COMMIT, Point.BEFORE_PROGRESS)
SCALES = (1, 4, 2)


def killed_at_points(arena: Arena, count: int) -> Done:
    """SIGKILL at each of the eight points, ``count`` times each: the whole applier, or just the process there."""
    done: Done = Counter()
    for turn in range(count):
        for point in Point:
            deed = arena.rng.choice([Deed.KILL_ALL, Deed.KILL_ONE])
            _pass(arena, point, deed)
            done[point] += 1
        if turn % SETTLE_EVERY == 0:
            arena.wait_until_exact()
    return done


def frozen_until_replaced(arena: Arena, count: int) -> Done:
    """SIGSTOP at a point past the session timeout, another takes over, SIGCONT: a zombie with an open transaction."""
    done: Done = Counter()
    for _ in range(count):
        point = arena.rng.choice(ZOMBIE_POINTS)
        frozen_at(arena, point)
        done[f"zombie {point}"] += 1
    return done


def frozen_at(arena: Arena, point: Point) -> None:
    """Freeze the applier that passes the point for longer than its session lasts, and wake it."""
    pid = _pass(arena, point, Deed.FREEZE_ALL)
    frozen = next(member for member in arena.fleet.appliers if member.pid == pid)
    over = time.monotonic() + SESSION_IS_OVER_S
    arena.step_until(lambda: time.monotonic() > over, 2 * SESSION_IS_OVER_S)
    frozen.send(signal.SIGCONT)
    arena.wait_until_exact()


def coming_and_going(arena: Arena, count: int) -> Done:
    """Appliers join and leave under load, 1 → 4 → 2 and again, one every few seconds."""
    done: Done = Counter()
    for turn in range(count):
        wanted = SCALES[turn % len(SCALES)]
        while len(_serving(arena)) != wanted:
            if len(_serving(arena)) < wanted:
                arena.fleet.add_applier()
                done["joined"] += 1
            else:
                arena.fleet.dismiss(arena.rng.choice(_serving(arena)))
                done["left"] += 1
            until = time.monotonic() + arena.rng.uniform(1.0, 4.0)
            arena.step_until(lambda until=until: time.monotonic() > until, 10.0)  # type: ignore[misc]
        arena.fleet.forget_ended()
        arena.wait_until_exact()
    return done


def _serving(arena: Arena) -> list[Member]:
    return [member for member in arena.fleet.appliers if not member.held]


def _pass(arena: Arena, point: Point, deed: Deed) -> int:
    """Arm a point and change the source until an applier has passed it; returns the applier's process id."""
    arena.points.arm(point, deed)
    taken = arena.step_until(lambda: arena.points.taken(point) is not None, PASSED_WITHIN_S)
    pid = arena.points.wait_until_taken(point, READY_WITHIN_S if taken else 0)
    if pid is None:
        raise TimeoutError(f"nobody passed {point} within {PASSED_WITHIN_S:.0f} s")
    return pid
