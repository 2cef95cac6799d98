"""One seed, one whole life: a source with a random history, destinations, an unreliable transport, and the verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import duckdb

from shared.contracts.messages import SeedMode
from tests.scratch import scratch
from tests.world.history import History, random_history, strange_history
from tests.world.lake import Lake, attach, detach, metadata, opened
from tests.world.layouts import declared_layout
from tests.world.oracle import check_all, check_source
from tests.world.owners import Owner
from tests.world.places import Folders, Places
from tests.world.recovery import Past, Recovery
from tests.world.replay import SOAK
from tests.world.service_view import Receiver, Run, forget_lakes, receiver, run_here, source_table
from tests.world.source import SourceLake
from tests.world.unreliable_transport import UnreliableTransport

SHORTEST, LONGEST = 5, 13
LOOKS_BACK = None if SOAK else 3
FOLDERS = Folders()


@dataclass
class Life:
    """What happened, and what is wrong with it; ``str()`` tells both."""

    seed: int
    history: History
    mode: SeedMode
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    owner: Owner | None = None
    """Who altered columns of destinations, if somebody did."""
    expired: int = 0
    """Snapshots of destinations that upkeep expired."""

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.mode}, {self.history.shape}", *self.log, *self.wrong])


def play(
    con: duckdb.DuckDBPyConnection,
    seed: int,
    run: Run = run_here,
    *,
    strange: bool = False,
    owned: bool = False,
    places: Places = FOLDERS,
) -> Life:
    """Live through the history of ``seed``. ``run`` does a task; by default the applier's function in this process.

    ``owned``: owners of destinations alter their columns meanwhile. ``strange``: with layouts, hostile texts, giants,
    encrypted lakes, and a source that may be restored. Where ``places`` do not stay warm, nobody in another process may
    have its catalog attached then.
    """
    rng = Random(seed)
    life = _drawn(rng, seed, places, strange=strange)
    life.owner = Owner(Random(f"owner {seed}")) if owned else None
    with tempfile.TemporaryDirectory(prefix="viaduck-life-", dir=scratch()) as folder:
        try:
            _live(con, Path(folder), rng, life, run, places, encrypts=strange)
        finally:
            forget_lakes()
            places.clear()
    return life


def history_of(seed: int) -> History:
    """What the usual life of a seed lives through."""
    return _drawn(Random(seed), seed, FOLDERS, strange=False).history


def _drawn(rng: Random, seed: int, places: Places, *, strange: bool) -> Life:
    append_only, expire = rng.random() < 0.2, rng.random() < 0.1
    steps = rng.randint(SHORTEST, LONGEST)
    if strange:
        recovers = rng.random() < places.recovers and not expire
        history = strange_history(
            rng,
            steps=steps,
            append_only=append_only,
            expire=expire,
            recovers=recovers,
            recovery_rate=places.recovery_rate,
        )
    else:
        history = random_history(rng, steps=steps, append_only=append_only, expire=expire, replaces=True)
    modes = [SeedMode.SCAN, SeedMode.SCAN, SeedMode.REPLAY] + ([] if append_only else [SeedMode.LATEST])
    return Life(seed, history, rng.choice(modes))


def _live(
    con: duckdb.DuckDBPyConnection,
    folder: Path,
    rng: Random,
    life: Life,
    run: Run,
    places: Places,
    *,
    encrypts: bool,
) -> None:
    place = places.lake(folder / "source", encrypted=encrypts and rng.random() < 0.1)
    source, pasts = SourceLake(con, place, life.history.shape), list[Past]()
    source.create()
    try:
        receivers = _receivers(
            folder, source, life.mode, places, left_out=rng.randint(0, 1), encrypted=encrypts and rng.random() < 0.15
        )
        if source.shape.layouts and life.seed % 2:
            _declare_layouts(Random(life.seed), receivers, source.shape.layouts)
        transport = UnreliableTransport(rng, source, source_table(source.lake, source.shape), receivers, run, life.log)
        # Where a life's content depends on where it began, the oracle needs the seed's stamp, which expiry takes.
        tells = life.mode is not SeedMode.LATEST and not source.shape.append_only
        transport.owner = life.owner
        # Nor can it be told what an owner lost once the stamp has gone of the last commit that looked.
        transport.expires = tells and not encrypts and life.owner is None and life.seed % 3 == 0
        for step in life.history.steps:
            if isinstance(step, Recovery):
                pasts += _recover(source, step, transport, stays_warm=places.stays_warm)
            else:
                source.run(step)
            life.log.append(f"source {source.truth.head}: {step}")
            transport.alter()
            if rng.random() < places.acts:
                transport.act()
        transport.keep_up()
        transport.settle()
        transport.keep_up()
        life.expired = transport.expired
        for stays in (False, True):
            promised = [one.promised for one in receivers if one.held_up is stays]
            head = None if stays else source.truth.head
            found = check_all(con, promised, source.truth, head=head, pasts=pasts, looks_back=LOOKS_BACK)
            life.wrong += map(str, found)
        found = check_source(con, source.lake, source.truth)
        life.wrong += [*source.differences(), *transport.wrong, *map(str, found)]
    finally:
        source.close()


def _declare_layouts(rng: Random, receivers: Sequence[Receiver], known: Sequence[str]) -> None:
    """Declare layouts for some destinations; the last one has a lake of its own, which may be created encrypted."""
    for each in receivers:
        if rng.random() < 0.6:
            alone = each is receivers[-1] and not each.promised.lake.exists
            layout = declared_layout(rng, known, encrypted=alone and rng.random() < 0.4)
            each.desired = each.desired.model_copy(update={"layout": layout})
            each.lake = replace(each.lake, encrypted=layout.encrypted)


def _recover(source: SourceLake, step: Recovery, transport: UnreliableTransport, *, stays_warm: bool) -> list[Past]:
    """Back up, restore or replace the source; returns the history that is no more, if one ended."""
    if not stays_warm:
        forget_lakes()
    kept = {Recovery.RESTORE: source.backup[1], Recovery.REPLACE: -1}.get(step, source.truth.head)
    before, lakes = source.truth.copy(), {one.promised.lake for one in transport.receivers}
    source.run(step)
    if step is Recovery.BACK_UP:
        return []
    transport.moved(kept)
    return [Past(before, kept, {lake: _newest(source.con, lake) for lake in lakes if lake.exists})]


def _newest(con: duckdb.DuckDBPyConnection, lake: Lake) -> int:
    with opened(con, lake) as alias:
        snapshots = metadata(con, alias, "ducklake_snapshot", lake)
        return int(con.execute(f"SELECT max(snapshot_id) FROM {snapshots}").fetchall()[0][0])


def _receivers(
    folder: Path, source: SourceLake, mode: SeedMode, places: Places, left_out: int, *, encrypted: bool
) -> list[Receiver]:
    """One destination for each tenant, or for all but the first: the first two tenants share a lake.

    ``encrypted``: their owner has made the lakes of the first two, and their files are encrypted.
    """
    lakes = {number: places.lake(folder / f"lake {number}", encrypted=encrypted and number == 1) for number in (1, 2)}
    if encrypted:
        attach(source.con, "owned", lakes[1], create=True)
        detach(source.con, "owned")
    return [
        receiver(
            folder / f"lake {max(number, 1)}",
            source.truth,
            source.shape,
            f"tenant-{number}",
            tenant,
            mode=mode,
            table=f"events {number}",
            lake=lakes[max(number, 1)],
        )
        for number, tenant in enumerate(source.shape.tenants)
        if number >= left_out
    ]
