"""A source lake, a lake for each tenant, and whether the one equals the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import duckdb

from bench.lakes import Lake, Lakes
from bench.single_process import SingleProcess, SourceTable
from bench.viaduck import PIPELINE
from bench.workload import KEY_COLUMN, ROUTING_FIELD, SCHEMA, SOURCE, TABLE, committed
from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, compare_all
from shared.config.model import Routing
from shared.contracts.messages import SeedMode
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect


class Stand:
    """``con`` has the source attached as ``SOURCE``, to write to; ``mirror`` has Viaduck's lakes by tenant."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, lakes: Lakes, tenants: Iterable[str], mirrored: Lakes | None = None,
        name: str = SOURCE, prefix: str = "v",
    ) -> None:  # fmt: skip
        """``mirrored`` makes the tenants' lakes, where that is not who makes the source, which is called ``name``;
        ``prefix`` begins the names of theirs."""
        self.con, self.lakes = con, lakes
        self.source = lakes.new(name)
        open_lake(con, SOURCE, lakes.direct(self.source))
        self.mirror = {tenant: (mirrored or lakes).new(f"{prefix}_{tenant}") for tenant in tenants}

    def head(self) -> int:
        return committed(self.con, SOURCE)

    def committed_at(self) -> float:
        """When the source's newest commit became visible, in seconds since the epoch."""
        return self.lakes.last_commit(self.source)

    def last_commit(self, tenants: Sequence[str] | None = None) -> float:
        """The latest moment at which a commit in one of these tenants' lakes became visible."""
        chosen = self.mirror if tenants is None else tenants
        return max(self.lakes.last_commit(self.mirror[tenant]) for tenant in chosen)

    def require_equal(self, *, keyed: bool = True) -> int:
        """Figures of a wrong result are worth nothing. Returns how many destinations were compared."""
        return require_equal(self.lakes, self.source, self.mirror, keyed=keyed)


@contextmanager
def standing(
    lakes: Lakes, tenants: Iterable[str], mirrored: Lakes | None = None, name: str = SOURCE, prefix: str = "v"
) -> Iterator[Stand]:
    with closing(connect()) as con:
        yield Stand(con, lakes, tenants, mirrored, name, prefix)


@contextmanager
def single_process(stand: Stand, tenants: Sequence[str]) -> Iterator[SingleProcess]:
    """The limit, over lakes of its own that are there and attached."""
    lakes = {tenant: stand.lakes.new(f"s_{tenant}") for tenant in tenants}
    with closing(connect()) as con:
        open_lake(con, SOURCE, stand.lakes.direct(stand.source))
        yield beside(con, lakes)


def beside(con: duckdb.DuckDBPyConnection, lakes: Mapping[str, Lake]) -> SingleProcess:
    """The single process on ``con``, which has the source attached; the tenants' lakes are made here."""
    for tenant, lake in lakes.items():
        open_lake(con, tenant, lake)
    table = SourceTable(SOURCE, SCHEMA, TABLE, ROUTING_FIELD, KEY_COLUMN)
    return SingleProcess(con, table, {tenant: tenant for tenant in lakes})


def open_lake(con: duckdb.DuckDBPyConnection, alias: str, lake: Lake) -> None:
    """Attach a lake to write to it, making it where it does not exist yet."""
    attach(con, alias, lake.resolved, read_only=False, create=True)


def require_equal(
    lakes: Lakes, source: Lake, mirror: Mapping[str, Lake], *, keyed: bool = True, suffix: str = ""
) -> int:
    """``suffix``: of the destinations' ids, behind the tenants' names."""
    routing = Routing(field=ROUTING_FIELD, key_columns=(KEY_COLUMN,) if keyed else ())
    origin = ComparedSource(lakes.direct(source).resolved, SCHEMA, TABLE, routing)
    subjects = [
        Subject(PIPELINE, f"{tenant}{suffix}", tenant, lakes.direct(lake).resolved, SCHEMA, TABLE, SeedMode.SCAN)
        for tenant, lake in mirror.items()
    ]
    wrong = [verdict for verdict in compare_all(origin, subjects) if verdict.finding is not ComparisonResult.EQUAL]
    assert not wrong, f"{len(wrong)} destinations differ from the source: {wrong[:3]}"
    return len(subjects)


def require_right(limit: SingleProcess) -> None:
    wrong = limit.unequal()
    assert not wrong, f"the single process is wrong: {wrong}"
