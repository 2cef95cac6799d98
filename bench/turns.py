"""``python -m bench.turns``: how often a look of the reader and a task's reading wait for the source's catalog.

Round trips, counted by a proxy between them and a real Postgres: a figure that no other load on the machine changes.
Twenty rows of each of four tenants change, in a table in files; both have worked before, and have the source attached.
Medians of ten commits; seconds are those at 20 ms a round trip.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.delay import FarAway
from services.applier.worker import worker_state
from services.reader.source.lake_source import LakeSource
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.ranges import Range
from tests.fast.reader.lakes import config
from tests.lake.rig import ApplyRig
from tests.servers.postgres import Postgres

TENANTS = ("a", "b", "c", "d")
ROWS, COMMITS, WARM = 20 * len(TENANTS), 10, 2
ROUND_TRIP_S = 0.02
LOOKED, COUNTED, READ = "the reader looks at a new head", "the reader counts its changes", "a task reads them"


@dataclass(frozen=True)
class Turns:
    """What was done, how many round trips it took, and how many seconds."""

    what: str
    count: int
    seconds: float


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="viaduck-bench-") as folder,
        Postgres(settings={}) as server,
        FarAway(server.port) as way,
    ):
        found = list(_turns(Path(folder), server, way))[3 * WARM :]
    table = Table(title=f"Round trips to a source, medians of {COMMITS} commits")
    for name in ("what", "round trips", "s"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for what in (LOOKED, COUNTED, READ):
        own = [each for each in found if each.what == what]
        count, seconds = (statistics.median(each) for each in zip(*((o.count, o.seconds) for o in own), strict=True))
        table.add_row(what, f"{count:g}", f"{seconds:.2f}")
    Console(width=110).print(table)


def _turns(folder: Path, server: Postgres, way: FarAway) -> Iterator[Turns]:
    def place(name: str, data: Path) -> ResolvedLake:
        server.create_database(name)
        port = way.port if name == "source" else None
        return ResolvedLake(f"postgres:{server.dsn(name, port=port)}", None, str(data))

    def timed(what: str, work: Callable[[], object]) -> Turns:
        way.round_trip(ROUND_TRIP_S)
        before, began = way.turns, time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        way.round_trip(0.0)
        return Turns(what, way.turns - before, seconds)

    rig = ApplyRig(folder, place)
    with closing(rig), closing(LakeSource(config(folder), rig.source)) as source:
        try:
            rig.sql(
                "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
                "CALL src.set_option('data_inlining_row_limit', 0)",
                f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER), 'v' FROM range(10000) r(i)",
            )
            for name in TENANTS:
                rig.add(name)
            rig.seed()
            for number in range(COMMITS + WARM):
                yield from _of_a_commit(rig, source, number, timed)
        finally:
            worker_state.forget()


def _of_a_commit(
    rig: ApplyRig, source: LakeSource, number: int, timed: Callable[[str, Callable[[], object]], Turns]
) -> Iterator[Turns]:
    before = rig.head
    head = rig.sql(f"UPDATE src.main.t SET v = 'x' WHERE id >= {number * ROWS:d} AND id < {(number + 1) * ROWS:d}")
    whole = Range(before, head)
    yield timed(LOOKED, lambda: (source.observe(source.head()), source.cuts(whole)))
    (cut,) = source.cuts(whole)
    yield timed(COUNTED, lambda: source.count(cut, TENANTS))
    targets = [rig.target(name, ItemKind.CHANGES, expected=before, after=before) for name in TENANTS]
    answers = []
    yield timed(READ, lambda: answers.extend(rig.run_targets(ItemKind.CHANGES, targets)))
    assert {each.outcome for each in answers} == {Outcome.APPLIED}, answers


if __name__ == "__main__":
    main()
