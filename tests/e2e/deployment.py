"""A deployment under attack: ``viaduck up`` on a random history, its processes, and the oracle's verdict at the end."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import psutil
import yaml

from services.cli.runtime.running import RunningViaduck
from shared.contracts.errors import DependencyError
from tests.e2e.parts import SOURCE, Parts
from tests.e2e.prepared_viaduck import PreparedViaduck
from tests.prepared import command_of
from tests.servers.ports import free_port
from tests.world.destination import Destination, Promise
from tests.world.duck import connect
from tests.world.history import Generator
from tests.world.lake import Lake
from tests.world.oracle import check_all, check_source
from tests.world.shape import random_shape
from tests.world.source import SourceLake
from tests.world.statements import Transaction

SETTLED_WITHIN_S = 180.0


class Deployment:
    """A source with a random history, a destination for each tenant, and the services as real processes."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        append_only: bool = False,
        beside: Sequence[Mapping[str, Any]] = (),
        parts: Parts | None = None,
    ) -> None:
        """``beside`` are entries of further destinations, about which nothing is promised; ``parts`` are servers."""
        self.rng, self.folder, self._beside = Random(seed), folder, list(beside)
        self.parts = parts or Parts()
        shape = random_shape(self.rng, append_only=append_only)
        self._con = connect()
        self.parts.prepare(self._con)
        self.source = SourceLake(self._con, self._lake(SOURCE), shape)
        self.source.create()
        self._created = self.source.head()
        self._generator = Generator(self.rng, shape)
        self.destinations = [self._destination(number, tenant) for number, tenant in enumerate(shape.tenants)]
        self.port = free_port()
        self.file = folder / "viaduck.yaml"
        self.declare(self.destinations)
        self.log = folder / "up.log"
        self.compared: Counter[str] = Counter()
        """How many stamped snapshots of each destination the oracle compared when it looked last."""

    def run(self) -> RunningViaduck:
        return PreparedViaduck(self.file, f"http://127.0.0.1:{self.port}", "events", self.log, self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """What the services find in their environment."""
        return {**os.environ, **self.parts.environ}

    def declare(self, destinations: Sequence[Destination]) -> None:
        """Write the file, with these destinations and those beside them."""
        self.file.write_text(yaml.safe_dump(self._configuration(destinations)))

    def step(self) -> None:
        """One random step of the source's history."""
        self.source.run(self._generator.step())

    def alter(self, *, nested: bool) -> Transaction:
        """A transaction of the source that changes columns, in most cases together with rows."""
        made = self._generator.alteration(nested=nested)
        self.source.run(made)
        return made

    def flatten(self) -> None:
        """Columns with fields go, where there are any."""
        if (made := self._generator.flattening()).statements:
            self.source.run(made)

    def close(self) -> None:
        self.source.close()
        self._con.close()

    def wait_until_exact(self, viaduck: RunningViaduck) -> None:
        """Wait until every destination is known to be exact at the source's head; nobody helps."""
        self.wait_until_exact_for(viaduck, *(each.id for each in self.destinations))

    def wait_until_exact_for(self, viaduck: RunningViaduck, *names: str) -> None:
        """The same for some of them."""
        head = self.source.head()
        try:
            viaduck.wait_until(
                f"{', '.join(names)} to reach snapshot {head}",
                lambda: reached(viaduck.destinations(), set(names), head),
                SETTLED_WITHIN_S,
            )
        except DependencyError as error:
            error.add_note(f"control says: {viaduck.destinations()}")
            raise

    def findings(self, *, seen: Counter[str] | None = None, most: int | None = None) -> list[str]:
        """What the oracle finds wrong, at any snapshot of any destination, and at the source.

        ``seen`` by earlier looks (``check_all``), where it is not to be looked at again; of ``most`` snapshots of each.
        """
        head = self.source.head()
        assert head > self._created, "no step changed a row: take another seed"
        self.compared = Counter()
        found = check_all(
            self._con, self.destinations, self.source.truth, compared=self.compared,
            seen=seen, most=most,
        )  # fmt: skip
        found += check_source(self._con, self.source.lake, self.source.truth)
        assert self.source.truth.head == head
        return [*map(str, found), *self.source.differences()]

    def _lake(self, name: str) -> Lake:
        return self.parts.lake(self.folder, name)

    def _destination(self, number: int, tenant: str) -> Destination:
        shape = self.source.shape
        promise = Promise.APPEND_ONLY if shape.append_only else Promise.SLICE
        return Destination(
            lake=self._lake(f"tenant-{number}"), table=shape.table, pipeline="events", id=f"tenant-{number}",
            value=tenant, schema=shape.schema, promise=promise, keys=shape.keys,
        )  # fmt: skip

    def _configuration(self, destinations: Sequence[Destination]) -> dict[str, Any]:
        shape = self.source.shape
        keys = {} if shape.append_only else {"key_columns": list(shape.keys)}
        # What a random history may contain is not what an append-only pipeline can follow; it says so by parking.
        loose = {"on_update": "append"} if shape.append_only else {}
        return {
            "pipeline": "events",
            "source": {**self.parts.entry(SOURCE, self.source.lake), "schema": shape.schema, "table": shape.table},
            "routing": {"field": shape.routing, **keys, **loose},
            "destinations": [
                *(
                    {"id": d.id, "routing_value": d.value, **self.parts.entry(d.id, d.lake), "schema": d.schema}
                    for d in destinations
                ),
                *self._beside,
            ],
            "poll": {"interval_seconds": 0.2},
            "server": {"port": self.port, "allowed_variables": ["TENANT_*"]},
            "state_dir": str(self.folder / "state"),
            **self.parts.sections,
        }


def reached(statuses: list[Any], wanted: set[str], head: int) -> bool:
    there = {status["id"] for status in statuses if (status["known_through"] or 0) >= head}
    return wanted <= there


def service(viaduck: RunningViaduck, name: str) -> psutil.Process | None:
    """The process of one service; None while it is not there."""
    for child in psutil.Process(viaduck.pid).children():
        try:
            if name in command_of(child):
                return child
        except psutil.Error:
            continue
    return None


def kill(viaduck: RunningViaduck, name: str) -> bool:
    """SIGKILL a service; whether there was one."""
    process = service(viaduck, name)
    if process is None:
        return False
    process.kill()
    return True


def kill_tree(viaduck: RunningViaduck) -> None:
    """SIGKILL everything at once, Spark and its workers too."""
    whole = [psutil.Process(viaduck.pid), *psutil.Process(viaduck.pid).children(recursive=True)]
    for process in whole:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
