"""What a reading of the source leaves in a worker's memory: the net changes of some destinations, in tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import duckdb

from services.applier.apply.source.parcels import FetchedParcels
from services.applier.model.task import RecordCounts
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.positions import UNSPELLED
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.catalog.reader import Column, TableInfo
from shared.lake.columns.followed import ColumnEvolution
from shared.lake.columns.terms import Comments, Described
from shared.lake.connection.engine import release
from shared.lake.pruning import PLAIN, FileLayout, comparison, may_prune
from shared.lake.sql import ident, path

_numbers = itertools.count(1)


@dataclass
class ChangeCounts:
    """Rows of one destination's net change; ``matched`` of the upserts have a key that the range also took away.

    ``harmless_keys`` tells for each key column whether all that is touched means itself in any query.
    """

    touched: int = 0
    upserts: int = 0
    matched: int = 0
    harmless_keys: tuple[bool, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """What of a reading's rows the destination's own ones have to tell.

    ``asking`` is a table of the reading's instance: ``place``, ``k0``, …, ``wanted`` (numbers of columns), ``fields``
    (name, number of the column that takes it as a whole). ``place_column`` tells the same place in ``rows``.
    ``wanted`` are the numbers of all columns that are asked for, ``rescued`` the name of the column of what found none.
    """

    asking: str
    count: int
    wanted: tuple[int, ...]
    place_column: str
    rescued: str


@dataclass
class Reading:
    """The net changes of some destinations, each by its number, in two tables of the instance that ``con`` is of.

    ``touched`` holds (number, key columns) of what is to be deleted first, ``rows`` (number, all columns) of what is to
    be inserted then. ``columns`` are the source's as of ``through``, spelled as DuckDB declares them.
    """

    con: duckdb.DuckDBPyConnection
    table: TableInfo
    columns: tuple[Column, ...]
    through: int
    only_inserts: bool
    routing: str
    keys: tuple[str, ...]
    """The names that routing column and key columns have at ``through``."""
    layout: FileLayout = PLAIN
    number: int = field(default_factory=lambda: next(_numbers))
    counts: dict[int, ChangeCounts] = field(default_factory=dict)
    refused: dict[int, ViaduckError] = field(default_factory=dict)
    evolutions: dict[int, ColumnEvolution] = field(default_factory=dict)
    """What has become of the source's columns since each destination's position, where something has."""
    described: Described | None = None
    """What the source's columns ask of rows to come and say of themselves; None of a topic."""
    carrying: frozenset[int] = frozenset()
    """Destinations whose table is to ask and say the same, which it may not yet."""
    comments: Mapping[int, Comments] = field(default_factory=dict)
    """The source's at the positions of these, where it has ever had any."""
    times: Mapping[int, datetime] = field(default_factory=dict)
    """When the snapshots were committed that the items name, by the source's own clock; of those still retained."""
    arrangement: Arrangement | None = None
    """Of the source, where a destination is to have the same."""
    null_keys: bool = False
    row_bytes: float = 0.0
    """Of a row, on average."""
    through_at: str = UNSPELLED
    """The source's own spelling of ``through``."""
    promotions: tuple[Column, ...] = ()
    """Columns that a destination is to give a wider type."""
    records: RecordCounts | None = None
    before_commit: Callable[[], None] | None = None
    """What has to be done of it outside of the destination before the transaction commits."""
    left_out: LeftOut | None = None
    refuse: Callable[[Sequence[int]], None] | None = None
    """Reads again without the records at some places, which the destination's rows don't complete."""
    is_quiet: bool = False
    """None of the records that were read is the destination's: nothing is to be committed."""
    rows_read: int = 0
    routing_mutations: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    fetched: FetchedParcels = field(default_factory=FetchedParcels)

    def __post_init__(self) -> None:
        taken = {column.name.lower() for column in self.columns}
        self.number_column = _free("_viaduck_d", taken)
        self.was_there_column = _free("_viaduck_was_there", taken)

    def deliver(self) -> None:
        """Bring outside what has to be there before the transaction commits: once, however often that is tried."""
        if self.before_commit is not None:
            self.before_commit()
            self.before_commit = None

    def memory(self, name: str) -> str:
        return path("memory", "main", f"{name}_{self.number}")

    def type_of(self, name: str) -> str:
        """The declared type of a column that is there."""
        return next(column.type for column in self.columns if column.name.lower() == name.lower())

    def same_keys(
        self, left: str, right: str, layout: FileLayout, harmless: Sequence[bool], named: Sequence[str] | None = None
    ) -> str:
        """The join of a lake's rows ``left`` with touched keys ``right``; ``layout`` is that of the lake's table, in
        which the key columns may be ``named`` otherwise."""
        return " AND ".join(
            comparison(
                f"{left}.{ident(name)}",
                f"{right}.k{number}",
                declared := self.type_of(self.keys[number]),
                prune=may_prune(declared, layout, harmless=harmless[number]),
                nulls=self.null_keys,
            )
            for number, name in enumerate(named or self.keys)
        )

    def nulls(self, number: int, names: Sequence[str]) -> tuple[int, ...]:
        """How many of a destination's rows have no value in each of these columns."""
        if not names:
            return ()
        counted = ", ".join(f"count(*) FILTER ({ident(name)} IS NULL)" for name in names)
        with closing(self.con.cursor()) as con:
            return tuple(
                con.execute(
                    f"SELECT {counted} FROM {self.memory('rows')} WHERE {self.number_column} = {number:d}"
                ).fetchall()[0]
            )

    def drop(self) -> None:
        """Give its memory back, and its connection. Raises ``duckdb.Error`` where the instance is lost."""
        self.fetched.clear()
        try:
            for name in ("targets", "feed", "touched", "rows"):
                self.con.execute(f"DROP TABLE IF EXISTS {self.memory(name)}")
        finally:
            release(self.con)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began


def key_not_unique(keys: Sequence[str], key: str, times: int, through: int) -> DestinationError:
    shown = key if len(key) <= 200 else key[:199] + "…"
    return DestinationError(
        "key_not_unique",
        f"{times} live rows of the source share the key ({', '.join(keys)}) = ({shown}) at snapshot {through}",
        "remove the double rows at the source, or declare routing.key_columns that identify a row, then resume",
    )


def _free(name: str, taken: set[str]) -> str:
    """The quoted name, varied until no column of the source has it."""
    return ident(next(free for i in itertools.count() if (free := f"{name}{i or ''}") not in taken))
