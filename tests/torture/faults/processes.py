"""Appliers that die at a named instruction, freeze and wake up as zombies, come and go."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.torture.fault import Done
from tests.torture.fleet import Member
from tests.torture.lags import Lags
from tests.torture.points import Deed, Passed, Point
from tests.torture.rig import READY_WITHIN_S, FaultRig

Act = Callable[[], object]
"""Something that is done to the source."""

PASSED_WITHIN_S = 120.0
SETTLE_EVERY = 8
SESSION_IS_OVER_S = 12.0
"""Longer than any session timeout here: the group has given the frozen one up."""

ZOMBIE_POINTS = (
    Point.AFTER_READ,
    Point.AFTER_FENCE,
    Point.BEFORE_COMMIT,
    Point.WITHIN_BATCH,
    Point.DURING_COMMIT,
    Point.BEFORE_PROGRESS,
)
SCALES = (1, 4, 2)
"""As many as a rig has at last."""
ALL_EVERY = 3
"""Kills: the whole applier is a start of Spark each time."""

ANOTHER_EVERY_S = (1.0, 4.0)
A_MOMENT_S = 0.5
HELD_FOR_S = 5.0
"""A transaction that has written and said nothing for so long belongs to somebody who stands still."""


def killed_at_points(rig: FaultRig, count: int) -> Done:
    """SIGKILL at each of the nine points, ``count`` times each: in turn the whole applier, and twice just the process
    there. At another point it begins with another of the three: at the last one, where the process there is the
    applier's driver anyway, with the whole."""
    done: Done = Counter()
    for turn in range(count):
        for place, point in enumerate(Point):
            deed = Deed.KILL_ONE if (turn + place + 1) % ALL_EVERY else Deed.KILL_ALL
            pass_point(rig, point, deed)
            done[point] += 1
        if turn % SETTLE_EVERY == 0:
            rig.wait_until_exact()
    return done


def frozen_until_replaced(rig: FaultRig, count: int) -> Done:
    """SIGSTOP at a point past the session timeout, another takes over, SIGCONT: a zombie with an open transaction."""
    done: Done = Counter()
    for _ in range(count):
        point = rig.rng.choice(ZOMBIE_POINTS)
        held = frozen_at(rig, point)
        done[f"zombie {point}"] += 1
        done["of them with a tenant locked by its own half COMMIT"] += bool(held)
    return done


def frozen_at(
    rig: FaultRig, point: Point, meanwhile: Callable[[str], None] = lambda _: None, act: Act | None = None
) -> set[str]:
    """Freeze the applier that passes the point for longer than its session lasts, and wake it once others go on for it.

    Before it wakes, ``meanwhile`` is called with the destination whose item passed, "" where the point doesn't tell.
    ``act``: what is done to the source meanwhile, else its history's next steps.

    Returns whose catalog it had locked meanwhile: a COMMIT of the extension that stands still in the middle lets nobody
    else write there until its connection ends. Everybody else has to be at the head before it wakes, also the tenants
    whose direct commits stand still: the server ends those.
    """
    passed = pass_point(rig, point, Deed.FREEZE_ALL, act)
    frozen = next(member for member in rig.fleet.appliers if member.pid == passed.pid)
    over = time.monotonic() + SESSION_IS_OVER_S
    _go_on(rig, act, lambda: time.monotonic() > over, 2 * SESSION_IS_OVER_S)
    held = {each.id for each in rig.site.destinations if rig.site.is_held(each, HELD_FOR_S)}
    if len(held) > 1:
        raise AssertionError(f"one frozen transaction holds more than one tenant: {sorted(held)}")
    if passed.destination in held:
        raise AssertionError(f"{passed.destination} stands at {point} and has locked its catalog already")
    others = {each.id for each in rig.site.destinations} - held
    rig.healed_s.append(rig.wait_for(others, rig.site.source.head()))
    if frozen.pid != passed.pid:
        raise AssertionError(f"{frozen.name} died while it was frozen: it is no zombie")
    meanwhile(passed.destination)
    frozen.send(signal.SIGCONT)
    rig.wait_until_exact()
    return held


def coming_and_going(rig: FaultRig, seconds: int, scales: Sequence[int] = SCALES) -> Done:
    """Appliers join and leave, 1 → 4 → 2 and again, one every few seconds, under load that never stops.

    One leaves as soon as another is ready, as whoever rolls a deployment out sees to. What was begun goes on to the
    last of ``scales``.
    """
    done: Done = Counter()
    lags, end = Lags(rig), time.monotonic() + seconds
    turns = itertools.cycle(scales)
    wanted = 0
    while time.monotonic() < end or wanted != scales[-1]:
        wanted = next(turns)
        while len(_serving(rig)) != wanted:
            if len(_serving(rig)) < wanted:
                rig.fleet.add_applier()
                done["joined"] += 1
            else:
                leaving, *staying = rig.rng.sample(_serving(rig), len(_serving(rig)))
                while not any(member.is_ready() for member in staying):
                    _load(rig, lags, A_MOMENT_S)
                rig.fleet.dismiss(leaving)
                done["left"] += 1
            _load(rig, lags, rig.rng.uniform(*ANOTHER_EVERY_S))
        done[f"times {wanted} appliers"] += 1
        rig.fleet.forget_ended()
    done["heads reached meanwhile"] = lags.arrived
    rig.wait_until_exact()
    return done


def _load(rig: FaultRig, lags: Lags, seconds: float) -> None:
    """Change the source for so long, and look whether anybody starves."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rig.step()
        lags.look()


def _serving(rig: FaultRig) -> list[Member]:
    return [member for member in rig.fleet.appliers if not member.held]


def pass_point(rig: FaultRig, point: Point, deed: Deed, act: Act | None = None) -> Passed:
    """Arm a point and change the source until an applier has passed it."""
    rig.points.arm(point, deed)
    taken = _go_on(rig, act, lambda: rig.points.taken(point) is not None, PASSED_WITHIN_S)
    passed = rig.points.wait_until_taken(point, READY_WITHIN_S if taken else 0)
    if passed is None:
        raise TimeoutError(f"nobody passed {point} within {PASSED_WITHIN_S:.0f} s")
    return passed


def _go_on(rig: FaultRig, act: Act | None, done: Callable[[], bool], timeout_s: float) -> bool:
    return rig.step_until(done, timeout_s) if act is None else rig.go_on_until(done, timeout_s, act)
