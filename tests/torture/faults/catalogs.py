"""What happens to the catalogs and data paths of destinations while they are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.torture.arena import Arena
from tests.torture.fault import Done

LOST_WITHIN_S = 60.0
SMALL_DISK = "64m"
SETTLE_EVERY = 10
FELT_WITHIN_S = 60.0
OURS = b'"viaduck": 1'
"""Every transaction of ours holds it, in its stamp."""


def acknowledgements_lost(arena: Arena, count: int) -> Done:
    """The server does the COMMIT, and the connection breaks before the applier hears of it (H7)."""
    for number in range(count):
        before = arena.proxy.commits_lost
        arena.proxy.lose_commits(1, holds=OURS)
        if not arena.step_until(lambda before=before: arena.proxy.commits_lost > before, LOST_WITHIN_S):  # type: ignore[misc]
            raise TimeoutError(f"no commit was lost within {LOST_WITHIN_S:.0f} s")
        if number % SETTLE_EVERY == 0:
            arena.wait_until_exact()
    lives = [int(status["generation"]) - 1 for status in arena.fleet.destinations()]
    return Counter({"lost": arena.proxy.commits_lost, "found damaged and seeded anew": sum(lives)})


def postgres_in_trouble(arena: Arena, count: int) -> Done:
    """In turn: restarted, killed, connections cut, falls silent; locks held; a data path not writable; a full disk."""
    done: Done = Counter()
    troubles = [_restarted, _killed, _cut, _silent, _locked, _unwritable]
    if os.geteuid() == 0:
        troubles.append(_full)  # a small disk has to be mounted
    for number in range(count):
        trouble = troubles[number % len(troubles)]
        for _ in range(2):
            arena.step()
        trouble(arena)
        arena.wait_until_exact()
        done[trouble.__name__.strip("_")] += 1
    return done


def _restarted(arena: Arena) -> None:
    with arena.site.away():
        arena.servers.postgres.stop()
        time.sleep(arena.rng.uniform(0.2, 2.0))
        arena.servers.postgres.start()


def _killed(arena: Arena) -> None:
    with arena.site.away():
        arena.servers.postgres.kill()
        time.sleep(arena.rng.uniform(0.2, 2.0))
        arena.servers.postgres.start()


def _cut(arena: Arena) -> None:
    for _ in range(5):
        arena.proxy.reset()
        arena.step()


def _silent(arena: Arena) -> None:
    arena.proxy.silence()
    for _ in range(3):
        arena.step()
    arena.proxy.heal()


def _locked(arena: Arena) -> None:
    """Somebody holds a lock on one tenant's catalog; only that tenant waits."""
    victim = arena.rng.choice(arena.site.destinations)
    with arena.servers.postgres.connect(arena.site.database_of(victim)) as con, con.transaction():
        con.execute("LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE")
        for _ in range(4):
            arena.step()
        _others_go_on(arena, victim.id)


def _unwritable(arena: Arena) -> None:
    """A file stands where one tenant's data belongs; only that tenant waits, and its status says why."""
    victim = arena.rng.choice(arena.site.destinations)
    place = Path(str(victim.lake.data_path))
    away = place.with_name(f"{place.name}.away")
    if place.exists():
        place.rename(away)
    place.touch()
    try:
        arena.step_until(lambda: _complains(arena, victim.id), FELT_WITHIN_S)
        if not _complains(arena, victim.id):
            raise AssertionError(f"{victim.id} can't be written, and its status has no reason with a hint")
        _others_go_on(arena, victim.id)
    finally:
        place.unlink()
        if away.exists():
            away.rename(place)
    arena.try_again(victim)  # it was parked: what is not writable may stay so


def _full(arena: Arena) -> None:
    """One tenant's disk is full for a while; it goes on by itself once there is room."""
    victim = arena.rng.choice(arena.site.destinations)
    arena.wait_until_exact()
    place = Path(str(victim.lake.data_path))
    with _small_disk(place):
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        arena.step_until(lambda: _complains(arena, victim.id), FELT_WITHIN_S)
        if not _complains(arena, victim.id):
            raise AssertionError(f"the disk of {victim.id} is full, and its status has no reason with a hint")
        _others_go_on(arena, victim.id)
        filler.unlink()
        arena.wait_until_exact()


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """Let a folder be a disk of its own for a while; nobody writes to it at both ends of that while."""
    place.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.aside")
    shutil.copytree(place, aside)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)], check=True)
    try:
        shutil.copytree(aside, place, dirs_exist_ok=True)
        yield
        shutil.copytree(place, aside, dirs_exist_ok=True)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    shutil.copytree(aside, place, dirs_exist_ok=True)
    shutil.rmtree(aside)


def _complains(arena: Arena, id: str) -> bool:
    statuses = {status["id"]: status for status in arena.fleet.destinations()}
    error = statuses.get(id, {}).get("error")
    return error is not None and bool(error["type"]) and bool(error["hint"])


def _others_go_on(arena: Arena, victim: str) -> None:
    head = arena.site.source.head()
    others = {each.id for each in arena.site.destinations} - {victim}
    arena.wait_for(others, head)
