"""What happens to the catalogs and data paths of destinations while they are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.torture.fault import Done
from tests.torture.rig import FaultRig
from tests.world.destination import Destination

UNHEARD_WITHIN_S = 60.0
CUT_SHARE = 0.5
LATE_S = 1.0
"""Within which an applier that was cut off looks into the catalog, and may be trying again."""

MOUNT = ("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs")
SETTLE_EVERY = 10
FELT_WITHIN_S = 60.0
TOLD_WITHIN_S = 30.0
"""A status says why it waits after ten seconds of silence; the machine may be busy, and a change has to come first."""

OURS = b'"viaduck": 1'
"""Every transaction of ours holds it, in its stamp."""


def commits_unheard(rig: FaultRig, count: int) -> Done:
    """An applier says COMMIT and never hears of it (H7): the server does it, and the acknowledgement is lost.

    Or the applier is cut off with COMMIT on its way, which arrives at once, or while somebody looks, or never.
    """
    for number in range(count):
        commit_unheard(rig, rig.step)
        if number % SETTLE_EVERY == 0:
            rig.wait_until_exact()
    rig.wait_until_exact()
    return unheard(rig)


def commit_unheard(rig: FaultRig, act: Callable[[], object]) -> None:
    """The acknowledgement of the next COMMIT is lost, or its applier cut off; ``act`` until one was met."""
    proxy = rig.proxy
    before = proxy.commits_lost + proxy.commits_cut
    if rig.rng.random() < CUT_SHARE:
        proxy.cut_commits(1, rig.rng.choice([0.0, rig.rng.uniform(0, LATE_S), None]), holds=OURS)
    else:
        proxy.lose_commits(1, holds=OURS)
    if not rig.go_on_until(lambda: proxy.commits_lost + proxy.commits_cut > before, UNHEARD_WITHIN_S, act):
        raise TimeoutError(f"no commit was met within {UNHEARD_WITHIN_S:.0f} s")


def unheard(rig: FaultRig) -> Done:
    """What became of all such COMMITs of a rig so far."""
    proxy = rig.proxy
    lives = [int(status["generation"]) - 1 for status in rig.fleet.destinations()]
    return Counter(
        {
            "acknowledgements lost": proxy.commits_lost,
            "cut off after COMMIT was sent, which was done": proxy.commits_arrived,
            "cut off after COMMIT was sent, which was not done": proxy.commits_cut - proxy.commits_arrived,
            "found damaged and seeded anew": sum(lives),
        }
    )


def postgres_in_trouble(rig: FaultRig, count: int) -> Done:
    """In turn: restarted, killed, connections cut, falls silent; locks held; a data path not writable; a full disk."""
    done: Done = Counter()
    troubles = [_restarted, _killed, _cut, _silent, _locked, _unwritable, _full]
    no_disk = _why_no_small_disk()
    for number in range(count):
        trouble = troubles[number % len(troubles)]
        if trouble is _full and no_disk is not None:
            done[f"full not played: {no_disk}"] += 1
            continue
        for _ in range(2):
            rig.step()
        kind = trouble.__name__.strip("_")
        done += Counter({f"hints while {kind}": trouble(rig)})
        rig.wait_until_exact()
        done[kind] += 1
    return done


def _restarted(rig: FaultRig) -> int:
    with rig.site.away():
        rig.servers.postgres.stop()
        time.sleep(rig.rng.uniform(0.2, 2.0))
        rig.servers.postgres.start()
    return _hints(rig)


def _killed(rig: FaultRig) -> int:
    with rig.site.away():
        rig.servers.postgres.kill()
        time.sleep(rig.rng.uniform(0.2, 2.0))
        rig.servers.postgres.start()
    return _hints(rig)


def _cut(rig: FaultRig) -> int:
    hints = 0
    for _ in range(5):
        rig.proxy.reset()
        rig.step()
        hints += _hints(rig)
    return hints


def _silent(rig: FaultRig) -> int:
    """Whatever is sent to the tenants' catalogs is swallowed; a status says why it waits while it does."""
    rig.proxy.silence()
    try:
        if not rig.step_until(lambda: _hints(rig) > 0, FELT_WITHIN_S):
            raise AssertionError("all catalogs are silent, and no status has a reason")
        return _hints(rig)
    finally:
        rig.proxy.heal()


def _locked(rig: FaultRig) -> int:
    """Somebody holds a lock on one tenant's catalog; only that tenant waits, and its status says why while it does."""
    victim = rig.rng.choice(rig.site.destinations)
    with rig.servers.postgres.connect(rig.site.database_of(victim)) as con, con.transaction():
        con.execute("LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE")
        if not rig.step_until(lambda: _complains(rig, victim.id), TOLD_WITHIN_S):
            raise AssertionError(f"the catalog of {victim.id} is locked, and its status has no reason with a hint")
        _others_go_on(rig, victim.id)
        hints = _hints(rig)
    rig.wait_until_exact()
    rig.fleet.wait_until(
        f"no reason any more for {victim.id} to wait", lambda: not _complains(rig, victim.id), TOLD_WITHIN_S
    )
    return hints


@contextmanager
def unwritable(victim: Destination) -> Iterator[None]:
    """A file stands where a tenant's data belongs: its status must say so for as long as it does."""
    place = Path(str(victim.lake.data_path))
    away = place.with_name(f"{place.name}.away")
    if place.exists():
        place.rename(away)
    place.touch()
    try:
        yield
    finally:
        place.unlink()
        if away.exists():
            away.rename(place)


def _unwritable(rig: FaultRig) -> int:
    """A file stands where one tenant's data belongs; only that tenant waits, and its status says why."""
    victim = rig.rng.choice(rig.site.destinations)
    with unwritable(victim):
        rig.step_until(lambda: _complains(rig, victim.id), FELT_WITHIN_S)
        if not _complains(rig, victim.id):
            raise AssertionError(f"{victim.id} can't be written, and its status has no reason with a hint")
        _others_go_on(rig, victim.id)
    rig.try_again(victim)  # it was parked: what is not writable may stay so
    return 1


def _full(rig: FaultRig) -> int:
    """One tenant's disk is full for a while; it goes on by itself once there is room."""
    victim = rig.rng.choice(rig.site.destinations)
    rig.wait_until_exact()
    place = Path(str(victim.lake.data_path))
    with _small_disk(place):
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        rig.step_until(lambda: _complains(rig, victim.id), FELT_WITHIN_S)
        if not _complains(rig, victim.id):
            raise AssertionError(f"the disk of {victim.id} is full, and its status has no reason with a hint")
        _others_go_on(rig, victim.id)
        filler.unlink()
        rig.wait_until_exact()
    return 1


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """Let a folder be a disk of its own for a while; nobody writes to it at both ends of that while."""
    place.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.aside")
    shutil.copytree(place, aside)
    subprocess.run([*MOUNT, str(place)], check=True)
    try:
        shutil.copytree(aside, place, dirs_exist_ok=True)
        yield
        shutil.copytree(place, aside, dirs_exist_ok=True)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    shutil.copytree(aside, place, dirs_exist_ok=True)
    shutil.rmtree(aside)


def _why_no_small_disk() -> str | None:
    """A full disk is played on a small one, which has to be mounted. None where that can be done."""
    if os.geteuid() != 0:
        return "only root may mount a small disk"
    with TemporaryDirectory() as place:
        tried = subprocess.run([*MOUNT, place], check=False, capture_output=True, text=True)
        if tried.returncode == 0:
            subprocess.run(["umount", place], check=True)
            return None
    return f"no small disk can be mounted here: {tried.stderr.strip()}"


def _hints(rig: FaultRig) -> int:
    """How many destinations say now why they wait. Raises ``AssertionError`` where one has an error without a hint."""
    errors = {status["id"]: status["error"] for status in rig.fleet.destinations() if status["error"] is not None}
    mute = [(who, error) for who, error in errors.items() if not (error["type"] and error["message"] and error["hint"])]
    if mute:
        raise AssertionError(f"destinations wait and don't say why, or what to do: {mute}")
    return len(errors)


def _complains(rig: FaultRig, id: str) -> bool:
    statuses = {status["id"]: status for status in rig.fleet.destinations()}
    error = statuses.get(id, {}).get("error")
    return error is not None and bool(error["type"]) and bool(error["hint"])


def _others_go_on(rig: FaultRig, victim: str) -> None:
    head = rig.site.source.head()
    others = {each.id for each in rig.site.destinations} - {victim}
    rig.wait_for(others, head)
