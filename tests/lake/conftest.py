"""Real lakes for tests: SQLite catalogs in a folder, Postgres catalogs on one server for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.applier.model.task import Limits
from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice
from tests.lake.rig import ApplyRig, MakeLake
from tests.servers.postgres import Postgres
from tests.world.places import Database

MakeRig = Callable[..., ApplyRig]


KINDS = ("sqlite", "postgres", "postgres-schema")
"""Of places for lakes: a SQLite file, a Postgres database each, or a metadata schema each in one database.

Lakes that share a database must not see each other's tables.
"""


@contextmanager
def places(kind: str, folder: Path, server: Callable[[], Postgres]) -> Iterator[MakeLake]:
    """Where lakes of a kind go. ``server`` is asked for where there has to be one."""
    if kind == "sqlite":
        yield lambda name, data: ResolvedLake(f"sqlite:{folder}/{name}.sqlite", None, str(data))
        return
    lent = dict[str, str]()

    def in_database(database: str, schema: str | None, data: Path) -> ResolvedLake:
        if database not in lent:
            lent[database] = server().lend_database()
        return ResolvedLake(f"postgres:{server().dsn(lent[database])}", schema, str(data))

    if kind == "postgres-schema":
        yield lambda name, data: in_database("shared", f"lake_{name}", data)
    else:
        yield lambda name, data: in_database(name, None, data)
    for database in lent.values():
        server().take_back(database)


@pytest.fixture(params=KINDS)
def make_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLake]:
    with places(request.param, tmp_path, lambda: request.getfixturevalue("postgres")) as make:
        yield make


@pytest.fixture
def commit() -> CommitChoice:
    """Who commits in a rig that is made without limits of its own; ``EITHER_PATH`` has a test play both."""
    return "auto"


@pytest.fixture
def make_rig(tmp_path: Path, make_lake: MakeLake, commit: CommitChoice) -> Iterator[MakeRig]:
    rigs: list[ApplyRig] = []

    def make(**options: Any) -> ApplyRig:
        options.setdefault("limits", Limits(commit=commit))
        rigs.append(ApplyRig(tmp_path, make_lake, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
    worker_state.forget()


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A source with two tenants of ten rows each, and their destinations."""
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, 'v' || i FROM range(20) r(i)",
    )
    made.add("a")
    made.add("b")
    return made


@pytest.fixture
def on_postgres(postgres: Postgres) -> Iterator[Database]:
    places = Database(postgres)
    yield places
    places.drop()
