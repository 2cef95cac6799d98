"""A site with its fleet, its workload and its verdict: where every fault is played."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import prepared
from tests.e2e.deployment import reached
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.torture.aborts import Aborts
from tests.torture.clicks import Clicks
from tests.torture.fleet import Fleet
from tests.torture.observer import Observer
from tests.torture.points import Points
from tests.torture.site import Ports, Site
from tests.world.destination import Destination
from tests.world.statements import Transaction
from tests.world.upkeep import Upkeep

PLANTED = "tests.torture.planted"
"""What services are forked from imports it first: their functions have points."""

HEALED_WITHIN_S = 60.0
"""Once faults stop, every healthy destination is at the head within this time: the liveness rule."""

READY_WITHIN_S = 180.0
STEP_EVERY_S = (0.05, 0.5)
AT_ONCE_S, LATER_S = 3.0, 1.5
"""Within which happens what a change brings about, while a session that has to be over takes longer."""


@dataclass(frozen=True)
class Servers:
    """What rigs stand on; those of a test run share them."""

    kafka: Kafka
    postgres: Postgres


class FaultRig:
    """``with FaultRig(folder, seed, servers) as rig``: everything runs, and the source changes when a fault says so.

    ``proxy`` is in front of the tenants' catalogs; the source's and the registry have their own.
    """

    def __init__(
        self, folder: Path, seed: int, servers: Servers, *, append_only: bool = False, appliers: int = 2,
        pace_s: tuple[float, float] = STEP_EVERY_S, patience: float = 0.0,
    ) -> None:  # fmt: skip
        """``pace_s``: a step of the source's history is followed by a moment between these two. What has gone on for
        longer than ``AT_ONCE_S`` is followed by a share of that time, its ``patience``, of ``LATER_S`` at most.
        """
        self.servers, self._pace_s, self._patience = servers, pace_s, patience
        self._closing = ExitStack()
        self.proxy, self.source_proxy, self.registry_proxy = (
            self._closing.enter_context(Proxy(servers.postgres.port)) for _ in range(3)
        )
        ports = Ports(self.source_proxy.port, self.proxy.port, self.registry_proxy.port)
        self.site = Site(folder, seed, servers.kafka, servers.postgres, ports, append_only=append_only)
        self._closing.callback(self.site.close)
        self.points = Points(folder / "points")
        self.clicks = Clicks(self.site, servers.kafka, seed)
        """The topic that lands beside the lake; it is written to with every step."""
        self._closing.callback(self.clicks.close)
        environ = {**self.site.environ, **self.points.environ}
        files = [self.site.file, self.site.clicks_file]
        self.fleet = Fleet(
            files, folder / "logs", self.site.port, environ, appliers=appliers, imported=(PLANTED, *prepared.UP)
        )
        self._aborts = Aborts(folder / "logs")
        self.observer = Observer(self.site, self.fleet)
        """Looks at what is shown from the moment at which everything runs."""
        self.healed_s: list[float] = []
        self.worst_lag_s: dict[str, float] = {}
        """The longest wait of each destination, of faults that look at it while they go on."""
        self.steps = 0
        self._seen = Counter[str]()

    def __enter__(self) -> Self:
        with ExitStack() as unless_ready:
            unless_ready.push(self._closing)
            self._closing.enter_context(self.fleet)
            self.wait_for({each.id for each in self.site.destinations}, self.site.source.head(), READY_WITHIN_S)
            self.clicks.settle(READY_WITHIN_S)
            self.observer.start()
            self._closing.callback(self.observer.stop)
            unless_ready.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._closing.close()

    @property
    def prefix(self) -> str:
        """Of our topics."""
        return self.site.topic_prefix

    @property
    def rng(self) -> Any:
        return self.site.rng

    def step(self) -> None:
        """One step of the source's history, some records for the topic, and a moment.

        No record comes while somebody waits for a change of the source to pass a point.
        """
        with self.observer.making():
            self.site.step()
        self.steps += 1
        if not self.points.is_armed:
            self.clicks.write()
        time.sleep(self.rng.uniform(*self._pace_s))

    def alter(self, *, nested: bool = True) -> Transaction:
        """Other columns at the source, mostly with rows in the same transaction, and a moment."""
        with self.observer.making():
            made = self.site.alter(nested=nested)
        self.steps += 1
        time.sleep(self.rng.uniform(*STEP_EVERY_S))
        return made

    def flatten(self) -> None:
        """Columns with fields go: direct commits leave tables that have such to DuckLake's extension."""
        with self.observer.making():
            self.site.flatten()

    def maintain(self, chore: Upkeep) -> None:
        """The source's owner keeps it up."""
        with self.observer.making():
            self.site.source.run(chore)

    def step_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Go on changing the source until ``done``; whether it came to that."""
        return self.go_on_until(done, timeout_s, self.step)

    def go_on_until(self, done: Callable[[], bool], timeout_s: float, act: Callable[[], object]) -> bool:
        """Do something again and again until ``done``; whether it came to that."""
        began = time.monotonic()
        while not done():
            waited_s = time.monotonic() - began
            if waited_s > timeout_s:
                return False
            act()
            time.sleep(min(LATER_S, self._patience * max(0.0, waited_s - AT_ONCE_S)))
        return True

    def wait_until_exact(self, timeout_s: float = HEALED_WITHIN_S) -> None:
        """Faults are over: everybody gets to the head, and nobody helps. Raises ``TimeoutError``."""
        wanted, began = {each.id for each in self.site.destinations}, time.monotonic()
        self.wait_for(wanted, self.site.source.head(), timeout_s)
        self.clicks.settle(timeout_s)
        self.healed_s.append(time.monotonic() - began)

    def wait_until_ready(self, timeout_s: float = HEALED_WITHIN_S) -> None:
        """Of faults of which nobody has died: every service says again that it is ready. Raises ``TimeoutError``."""
        try:
            self.healed_s.append(self.fleet.wait_until("all services to be ready", self.fleet.are_ready, timeout_s))
        except TimeoutError as late:
            raise TimeoutError(f"{late}; {self.fleet.complaints()}") from None

    def wait_for(self, wanted: set[str], head: int, timeout_s: float = HEALED_WITHIN_S) -> float:
        """Seconds until these destinations are known to be exact at ``head``. Raises ``TimeoutError``."""
        try:
            return self.fleet.wait_until(
                f"{len(wanted)} destinations at snapshot {head}",
                lambda: reached(self.fleet.destinations(), wanted, head),
                timeout_s,
            )
        except TimeoutError as late:
            raise TimeoutError(f"{late}; {self.fleet.who_waits(head)}") from None

    def wipe_broker(self) -> None:
        """Another cluster, with nothing in it, answers under the same address; its owner makes the topic again."""
        with self.clicks.gone():
            self.servers.kafka.wipe()

    def try_again(self, destination: Destination) -> None:
        """An operator's word that the cause of a park is gone: the destination's entry in the file changes."""
        self.site.touch(destination)
        self.reload()

    def reload(self) -> None:
        """The file changed."""
        for member in self.fleet.members.values():
            member.ask(signal.SIGHUP)

    def findings(self, *, shown: bool = True, new: bool = False, most: int | None = None) -> list[str]:
        """What the oracles find wrong in the lakes, and in services' processes and what was ``shown`` since this was
        asked last.

        ``new``: the rows of snapshots since the last such look alone, each of which reads them for the first time;
        ``most``: of at most so many of each destination.
        """
        said = self.observer.lies()
        found = self.site.findings(seen=self._seen if new else None, most=most)
        return [*found, *self.clicks.findings(), *self._aborts.new(), *(said if shown else ())]
