"""A source lake, destinations, and the applier's worker function called without Spark."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from services.applier.model.task import Limits, SourceTable, Target, Task
from services.applier.worker import worker_state
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, Progress, SeedMode, WorkItem
from shared.lake.connection.attach import attach, detach
from shared.lake.connection.engine import connect, release
from shared.lake.connection.new_catalog import create_catalog
from shared.lake.connection.postgres import PostgresConnections
from tests.servers.s3 import S3

MakeLake = Callable[[str, Path], ResolvedLake]
"""A new, empty place for a lake of that name with its data in that folder."""

EITHER_PATH = pytest.mark.parametrize("commit", ["auto", "extension"])
"""Directly where that can be done, and by DuckLake's extension as it always is for seeds."""

_items = itertools.count(1)

_looking: list[duckdb.DuckDBPyConnection] = []
_turn = threading.Lock()


@contextmanager
def looking(lake: ResolvedLake) -> Iterator[duckdb.DuckDBPyConnection]:
    """``lake`` as ``dst`` in the instance in which this process looks at lakes, one at a time: an instance for each
    would cost more than the look. After an error it is another instance."""
    with _turn:
        if not _looking:
            _looking.append(connect())
            _looking[0].execute("SET enable_external_file_cache = false")  # tests exchange files
        con = _looking[0]
        try:
            attach(con, "dst", lake, read_only=True)
            yield con
            detach(con, "dst")
        except BaseException:
            release(_looking.pop())
            raise


def schema_of(lake: ResolvedLake) -> dict[str, str]:
    """What a configuration says of ``lake`` beside its catalog where it shares a database."""
    return {} if lake.metadata_schema is None else {"metadata_schema": lake.metadata_schema}


def owners_connection(lake: ResolvedLake) -> psycopg.Connection[Any]:
    """To a Postgres catalog; tables without a schema are this lake's own."""
    return psycopg.connect(make_conninfo(lake.conninfo, options=f"-c search_path={lake.schema}"))


def lake_on(catalog: str, s3: S3 | None, folder: Path) -> ResolvedLake:
    """An empty place for a lake with its files in ``folder``, or in a bucket of its own."""
    if s3 is None:
        return ResolvedLake(catalog, None, str(folder / "files"))
    bucket = f"lake-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    return ResolvedLake(catalog, None, f"s3://{bucket}/l/", properties=s3.properties(s3.admin))


def begin(lake: ResolvedLake) -> None:
    """Make a lake's catalog in less time than DuckLake's extension takes, where that can be done."""
    with closing(PostgresConnections(1)) as connections:
        create_catalog(connections, lake)


class ApplyRig:
    """One pipeline on real lakes: ``sql`` writes to the source, ``run`` does items for destinations."""

    def __init__(
        self, folder: Path, make_lake: MakeLake, routing: Routing | None = None, limits: Limits | None = None
    ) -> None:
        self.folder, self._make_lake = folder, make_lake
        self.routing = routing or Routing(field="tenant", key_columns=("id",))
        self.limits = limits or Limits()
        self.source = make_lake("source", folder / "source-data")
        self.con = connect()
        begin(self.source)
        attach(self.con, "src", self.source, read_only=False, create=True)
        self.table = "t"
        """The name of the source's table in the configuration."""
        self._lakes: dict[str, ResolvedLake] = {}
        self.destinations: dict[str, Destination] = {}

    def close(self) -> None:
        self.con.close()

    def sql(self, *statements: str) -> int:
        """Run statements on the source, each a commit of its own; returns the head snapshot."""
        for statement in statements:
            self.con.execute(statement)
        return self.head

    @property
    def head(self) -> int:
        return int(self.con.execute("SELECT id FROM src.current_snapshot()").fetchall()[0][0])

    def add(self, name: str, value: str | None = None, lake: ResolvedLake | None = None, **changed: Any) -> Destination:
        """Declare a destination, or change one."""
        self._lakes[name] = lake or self._lakes.get(name) or self._make_lake(name, self.folder / f"{name}-data")
        known = self.destinations.get(name)
        fields = known.model_dump() if known else {
            "pipeline": "p", "destination": name, "generation": 1, "routing_value": value or name,
            "state": DesiredState.RUNNING, "lake": LakeRef(catalog="sqlite:elsewhere"), "table": "t",
            "seed_mode": SeedMode.SCAN, "revision": "1",
        }  # fmt: skip
        self.destinations[name] = Destination.model_validate(fields | changed)
        return self.destinations[name]

    def lake(self, name: str) -> ResolvedLake:
        return self._lakes[name]

    def target(self, name: str, kind: ItemKind, **item: Any) -> Target:
        destination = self.destinations[name]
        fields = {"item": f"item-{next(_items)}", "kind": kind, "pipeline": "p", "destination": name,
                  "generation": destination.generation, "through": self.head}  # fmt: skip
        encrypted = destination.layout is not None and destination.layout.encrypted
        lake = replace(self._lakes[name], encrypted=encrypted)
        return Target(WorkItem.model_validate(fields | item), destination, lake)

    def run_targets(self, kind: ItemKind, targets: Sequence[Target]) -> list[Progress]:
        """As many tasks as it takes until every target had its turn."""
        source, said = SourceTable(self.source, "main", self.table, self.routing), dict[str, Progress]()
        while waiting := tuple(target for target in targets if target.item.item not in said):
            results = run_task(Task(kind, source, waiting, self.limits)).results
            said |= {result.progress.item: result.progress for result in results}
        return [said[target.item.item] for target in targets]

    def run(self, kind: ItemKind, *names: str, **item: Any) -> list[Progress]:
        """Do one item of ``kind`` for each named destination, or for all."""
        return self.run_targets(kind, [self.target(name, kind, **item) for name in names or self.destinations])

    def seed(self, *names: str, **item: Any) -> list[Progress]:
        return self.run(ItemKind.SEED, *names, **item)

    def changes(self, expected: int, *names: str, **item: Any) -> list[Progress]:
        return self.run(ItemKind.CHANGES, *names, **({"expected": expected, "after": expected} | item))

    def look(self, name: str, query: str) -> list[tuple[Any, ...]]:
        """Query a destination, attached as ``dst`` for this."""
        with looking(self._lakes[name]) as con:
            return con.execute(query).fetchall()

    def write(self, name: str, *statements: str) -> None:
        """Write to a destination behind Viaduck's back."""
        con = connect()
        try:
            attach(con, "dst", self._lakes[name], read_only=False, create=True)
            for statement in statements:
                con.execute(statement)
        finally:
            detach(con, "dst")
            con.close()

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.look(name, "SELECT * FROM dst.main.t"), key=repr)

    def described(self, name: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The columns of a destination with their types, and its rows, as of one time."""
        with looking(self._lakes[name]) as con:
            columns = [row[:2] for row in con.execute("DESCRIBE dst.main.t").fetchall()]
            return columns, sorted(con.execute("SELECT * FROM dst.main.t").fetchall(), key=repr)

    @contextmanager
    def opened(self, name: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """An instance with a destination attached as ``dst``, for many looks as of one time, in one transaction: else
        each look would load the lake's schema for itself, which costs as much as the look."""
        with closing(connect()) as con:
            attach(con, "dst", self._lakes[name], read_only=True)
            con.execute("BEGIN")
            yield con
            con.execute("ROLLBACK")

    def look_writing(self, name: str, query: str) -> list[tuple[Any, ...]]:
        """The same for what DuckLake answers only where it may write."""
        con = connect()
        try:
            attach(con, "dst", self._lakes[name], read_only=False)
            return con.execute(query).fetchall()
        finally:
            con.close()

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        """The slice of the source's head that ``name`` must hold."""
        return self.expected_of(self.destinations[name].routing_value)

    def expected_of(self, value: str) -> list[tuple[Any, ...]]:
        """The slice of the source's head of a tenant."""
        found = self.con.execute("SELECT * FROM src.main.t WHERE CAST(tenant AS VARCHAR) = ?", [value]).fetchall()
        return sorted(found, key=repr)

    def forget(self) -> None:
        """Let this process's worker go, with the lakes that it has open."""
        worker_state.forget()

    def commits(self, name: str) -> int:
        try:
            return int(self.look(name, "SELECT max(snapshot_id) FROM dst.snapshots()")[0][0])
        except duckdb.Error:
            return 0
