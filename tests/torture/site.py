"""What is tortured: a deployment on a real broker and Postgres, each of its databases behind a proxy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.e2e.deployment import Deployment
from tests.e2e.parts import REGISTRY, SOURCE, Parts
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.world.destination import Destination
from tests.world.lake import attach, opened
from tests.world.stamps import Stamp, commits_of, parse

PIPELINE = "events"
"""The one that the oracle and the specification judge."""

CLICKS = "clicks"
"""The pipeline beside it, and its one destination: a topic that lands as a table."""

ROUTED_BY, OURS = "to", "ours"
"""The field by which the topic is routed, if it is, and the value of the records that its destination takes."""

BACKUP = "registry_backup"
SECOND_SOURCE = "TENANT_SECOND_SOURCE"
"""The variable in which services find the source of a second pipeline, for whoever puts one."""

OFTEN = {"compact_after_applies": 10}
EXPIRY = {"expire_after": "7d", "clean_after": "7d", "keep_snapshots": 2}
AGED_DAYS = 8

TENANTS = range(10)
"""More than any shape has."""


@dataclass(frozen=True)
class Ports:
    """By which services reach Postgres: the source's catalog, all tenants' catalogs, and the registry."""

    source: int
    tenants: int
    registry: int

    def by_name(self) -> dict[str, int]:
        tenants = {f"tenant-{number}": self.tenants for number in TENANTS}
        return {SOURCE: self.source, REGISTRY: self.registry, CLICKS: self.tenants, **tenants}


class Site(Deployment):
    """Each lake has a database of its own. Services reach them by ``ports``, the world itself by Postgres's own."""

    def __init__(
        self, folder: Path, seed: int, kafka: Kafka, postgres: Postgres, ports: Ports, *, append_only: bool = False
    ) -> None:
        self._postgres = postgres
        self._touched: Counter[str] = Counter()
        self._aged: dict[str, Stamp] = {}
        sections = {"instance": {"id": "torture"}}
        parts = Parts(kafka=kafka, postgres=postgres, sections=sections, ports=ports.by_name())
        # Often, so that faults meet it; snapshots get so old only where a fault ages them.
        parts.sections["upkeep"] = {**OFTEN, **EXPIRY}
        parts.sections["kafka"]["bootstrap_servers"] = kafka.faulty_bootstrap
        parts.environ[SECOND_SOURCE] = f"sqlite:{folder / 'second' / 'source' / 'catalog.sqlite'}"
        super().__init__(folder, seed, append_only=append_only, parts=parts)
        self.is_routed, self.is_keyed = seed % 2 == 0, seed % 4 == 2
        """Whether the topic fans out, with one destination that takes some of its records, else it takes them all; and
        whether the newest record of a key wins, wherever that goes."""
        value = OURS if self.is_routed else ""
        self.clicks = Destination(lake=self._lake(CLICKS), table=CLICKS, pipeline=CLICKS, id=CLICKS, value=value)
        self.topic = f"{self.topic_prefix}-{CLICKS}"
        self.clicks_file = folder / f"{CLICKS}.yaml"
        self.clicks_file.write_text(yaml.safe_dump(self._clicks(kafka)))

    def _clicks(self, kafka: Kafka) -> dict[str, Any]:
        """The file of the pipeline that lands a topic; what both have in common is in the other one."""
        source: dict[str, Any] = {"kind": "kafka", "topic": self.topic, "bootstrap_servers": kafka.faulty_bootstrap}
        entry = {"id": CLICKS, "table": CLICKS, **self.parts.entry(CLICKS, self.clicks.lake)}
        made = {"pipeline": CLICKS, "flush": {"seconds": 1.0}, "upkeep": OFTEN}
        if not self.is_routed:
            return {**made, "source": source, "destinations": [entry]}
        source["columns"] = [{"name": ROUTED_BY, "path": f"$.{ROUTED_BY}", "type": "VARCHAR"}]
        routing: dict[str, Any] = {"field": ROUTED_BY}
        if self.is_keyed:
            source |= {"format": {"value": "json", "key": "text"}, "metadata": ["partition", "offset", "key"]}
            routing["key_columns"] = ["_kafka_key"]
        return {**made, "source": source, "routing": routing, "destinations": [{**entry, "routing_value": OURS}]}

    @property
    def topic_prefix(self) -> str:
        return str(self.parts.sections["kafka"]["topic_prefix"])

    @contextmanager
    def away(self) -> Iterator[None]:
        """The world lets go of the source for a while: its server is about to go away."""
        self.source.close()
        yield
        attach(self._con, self.source.place.alias, self.source.lake)

    def touch(self, destination: Destination) -> None:
        """Change a destination's entry in the file, to no other meaning."""
        self._touched[destination.id] += 1
        self.declare(self.destinations)

    def head_of(self, destination: Destination) -> int:
        """The newest snapshot of a destination's lake; 0 before there is one."""
        with self._postgres.connect(self.database_of(destination)) as con:
            row = con.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
        return int(row[0]) if row is not None and row[0] is not None else 0

    def stamps(self) -> list[Stamp]:
        """What the snapshots of all destinations said of themselves, each destination's oldest first."""
        found = []
        for each in self.destinations:
            known = {token: stamp for token, stamp in self._aged.items() if stamp.destination == each.id}
            known |= {stamp.token: stamp for stamp in self._stamps_of(each)}
            found += sorted(known.values(), key=lambda stamp: stamp.snapshot)
        return found

    def age(self, destination: Destination) -> int:
        """Let all snapshots of a destination's lake, and files that it let go, be old; how many snapshots it has.

        What they say of themselves is kept here, for they may be expired from now on.
        """
        stamps = self._stamps_of(destination)
        self._aged |= {stamp.token: stamp for stamp in stamps}
        newest, days = stamps[-1].snapshot, f"{AGED_DAYS} days"
        with self._postgres.connect(self.database_of(destination)) as con:
            con.execute(f"UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - interval '{days}'"
                        " WHERE snapshot_id <= %s", (newest,))  # fmt: skip
            con.execute("UPDATE ducklake_files_scheduled_for_deletion"
                        f" SET schedule_start = schedule_start - interval '{days}'")  # fmt: skip
            row = con.execute("SELECT count(*) FROM ducklake_snapshot").fetchone()
        return 0 if row is None else int(row[0])

    def _stamps_of(self, destination: Destination) -> list[Stamp]:
        with opened(self._con, destination.lake) as alias:
            commits = commits_of(self._con, alias, destination.lake)
        return [parse(commit) for commit in commits if commit.is_ours]

    def files_referenced_twice(self) -> list[str]:
        """Data files that a destination's catalog names more than once."""
        sql = "SELECT path FROM ducklake_data_file GROUP BY path HAVING count(*) > 1"
        found = []
        for each in self.destinations:
            with self._postgres.connect(self.database_of(each)) as con:
                found += [f"{each.id}: {path}" for (path,) in con.execute(sql)]
        return found

    def is_held(self, destination: Destination, for_s: float) -> bool:
        """Whether a transaction that has written to a destination's catalog has been silent for so long."""
        sql = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_xid IS NOT NULL"
            " AND state LIKE 'idle in transaction%%' AND clock_timestamp() - state_change > make_interval(secs => %s)"
        )
        with self._postgres.connect(self.database_of(destination)) as con:
            row = con.execute(sql, (self.database_of(destination), for_s)).fetchone()
        return row is not None and row[0] > 0

    def connected(self, destination: Destination) -> psycopg.Connection[Any]:
        """To a destination's catalog, past the proxy. Raises ``psycopg.Error`` while its server is away."""
        return self._postgres.connect(self.database_of(destination))

    def database_of(self, destination: Destination) -> str:
        return self.parts.database(destination.id)

    def back_up_registry(self) -> None:
        """Copy what the registry holds now. Nobody may use it meanwhile."""
        self._postgres.copy_database(self.parts.database(REGISTRY), self.parts.database(BACKUP))

    def restore_registry(self) -> None:
        """Let the registry be what it was when it was copied."""
        self._postgres.copy_database(self.parts.database(BACKUP), self.parts.database(REGISTRY))

    def lose_registry(self) -> None:
        self._postgres.drop_database(self.parts.database(REGISTRY))
        self._postgres.create_database(self.parts.database(REGISTRY))

    def _configuration(self, destinations: Sequence[Destination]) -> dict[str, Any]:
        made = super()._configuration(destinations)
        for entry in made["destinations"]:
            entry["name"] = f"{entry['id']} {self._touched[entry['id']]}"
        made["routing"]["on_gap"] = "reseed"
        return made
