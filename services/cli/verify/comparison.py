"""Comparing destinations with their slices of the source, row by row: columns, types and values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

import duckdb

from services.cli.verify.differences import Differences, Multisets
from services.cli.verify.expected_rows import Expected, SourceSlice, default_of
from services.cli.verify.past_proof import COMPACTED, GONE, TIDIED, PastProof, StampedPosition, last_compaction, stamped
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.errors import DestinationError, SourceError, ViaduckError
from shared.contracts.messages import Problem, SeedMode
from shared.lake.catalog.reader import CatalogReader, Column, TableInfo
from shared.lake.checks.foreign_files import require_no_code, require_own_files
from shared.lake.connection.attach import attach, confine, scanners
from shared.lake.connection.engine import instance, read_whole
from shared.lake.cursor import SCHEMA, Position, cursor_name, moved, read_position
from shared.lake.failure import LakeAbsent, classify
from shared.lake.routing_value import spelled
from shared.lake.sql import ident, path
from shared.lake.stamp import read_stamp
from shared.lake.table import is_table

SOURCE, DESTINATION = "source", "destination"

NOT_THE_SAME = ("table_mismatch", "source_recreated", "source_moved", "routing_value_changed")
"""Problems that make a destination different whatever its rows are."""


class ComparisonResult(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_SEEDED = "not_seeded"
    FAILED = "failed"
    """It could not be read, or nothing could be proven; the problem says why."""


@dataclass(frozen=True)
class ComparedSource:
    """The source table that destinations are compared with."""

    lake: ResolvedLake
    schema: str
    table: str
    routing: Routing


@dataclass(frozen=True)
class Past:
    """All retained snapshots are to be compared, too: those since a moment, or all."""

    since: datetime | None = None


@dataclass(frozen=True)
class Subject:
    """A destination to compare; ``routing_value`` as it is configured."""

    pipeline: str
    destination: str
    routing_value: str
    lake: ResolvedLake
    schema: str
    table: str
    seed_mode: SeedMode
    past: Past | None = None


@dataclass(frozen=True)
class Verdict:
    """What the comparison of one destination came to."""

    destination: str
    finding: ComparisonResult
    position: int | None = None
    proven_at: int | None = None
    """The source snapshot that was read: the head where nothing of the destination changed after its position."""
    rows: int | None = None
    differences: Differences = field(default_factory=Differences)
    note: str = ""
    problem: Problem | None = None
    seconds: float = 0.0
    past: PastProof | None = None
    """None where the retained snapshots were not asked for."""


def compare_all(origin: ComparedSource, subjects: Sequence[Subject], memory_limit: str | None = None) -> list[Verdict]:
    """Compare some destinations with one source, one after the other, each on a DuckDB instance of its own.

    A lake that can't be read is a verdict too, so one of them never costs the others theirs.
    """
    return [_compared(origin, subject, memory_limit) for subject in subjects]


def _compared(origin: ComparedSource, subject: Subject, memory_limit: str | None) -> Verdict:
    began = time.perf_counter()
    with instance(memory_limit=memory_limit, catalogs=scanners(origin.lake, subject.lake)) as con:
        read_whole(con)
        try:
            attach(con, SOURCE, origin.lake, read_only=True)
        except ViaduckError as error:
            return Verdict(subject.destination, ComparisonResult.FAILED, problem=error.problem())
        with closing(CatalogReader.attached(origin.lake, con, SOURCE)) as catalog:
            verdict = _compare(con, catalog, origin, subject)
    return replace(verdict, seconds=round(time.perf_counter() - began, 3))


def _compare(
    con: duckdb.DuckDBPyConnection, catalog: CatalogReader, origin: ComparedSource, subject: Subject
) -> Verdict:
    try:
        attach(con, DESTINATION, subject.lake, read_only=True)
        confine(con, SOURCE, DESTINATION)
        with closing(CatalogReader.attached(subject.lake, con, DESTINATION)) as theirs:
            theirs.inlined_tables()
            require_own_files(theirs, subject.lake)
            cursor = cursor_name(subject.pipeline, subject.destination)
            require_no_code(theirs, subject.lake, ((SCHEMA, cursor), (subject.schema, subject.table)))
        verdict = _pinned_verdict(Comparison(con, catalog, origin, subject))
        return verdict if subject.past is None else _with_past(verdict, con, catalog, origin, subject, subject.past)
    except LakeAbsent as error:
        return Verdict(subject.destination, ComparisonResult.NOT_SEEDED, problem=error.problem())
    except ViaduckError as error:
        return _failed(subject, error)
    except duckdb.Error as error:
        return _failed(subject, classify(error, f"comparing {subject.destination} with its source"))


def _failed(subject: Subject, error: ViaduckError) -> Verdict:
    finding = ComparisonResult.DIFFERENT if error.type in NOT_THE_SAME else ComparisonResult.FAILED
    return Verdict(subject.destination, finding, problem=error.problem())


def _pinned_verdict(comparison: Comparison) -> Verdict:
    """In a transaction of its own, which an error ends."""
    try:
        with _pinned(comparison.con):
            return comparison.verdict()
    except ViaduckError as error:
        return _failed(comparison.subject, error)
    except duckdb.Error as error:
        named = comparison.subject.destination
        return _failed(comparison.subject, classify(error, f"comparing {named} with its source"))


def _with_past(
    verdict: Verdict,
    con: duckdb.DuckDBPyConnection,
    catalog: CatalogReader,
    origin: ComparedSource,
    subject: Subject,
    past: Past,
) -> Verdict:
    with closing(CatalogReader.attached(subject.lake, con, DESTINATION)) as theirs:
        snapshots = list(stamped(theirs, subject.pipeline, subject.destination, past.since))
        compacted = last_compaction(theirs, subject.schema, subject.table)
    proof = PastProof()
    for each in snapshots:
        found = _pinned_verdict(Comparison(con, catalog, origin, subject, each.snapshot))
        proof = _noted(proof, each, found, is_compacted=each.snapshot < compacted)
    is_different = proof.different and verdict.finding is ComparisonResult.EQUAL
    return replace(verdict, past=proof, finding=ComparisonResult.DIFFERENT if is_different else verdict.finding)


def _noted(proof: PastProof, snapshot: StampedPosition, found: Verdict, *, is_compacted: bool) -> PastProof:
    """What DuckLake shows by time travel behind a compaction proves nothing, whatever it is."""
    if is_compacted or found.note:
        return proof.with_unproven(COMPACTED if is_compacted else found.note)
    if found.problem is not None and found.problem.type in GONE:
        return proof.with_unproven(found.problem.message)
    if found.finding is ComparisonResult.EQUAL:
        return proof.with_proven()
    if found.finding is ComparisonResult.NOT_SEEDED:
        return proof.with_unproven(TIDIED)
    return proof.with_different(snapshot, _in_short(found))


def _in_short(found: Verdict) -> str:
    if found.problem is not None:
        return found.problem.message
    counted = found.differences
    return f"{counted.missing} rows missing, {counted.extra} extra, {counted.changed} changed"


@contextmanager
def _pinned(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """One transaction, so that each lake is seen as of the first statement that touches it."""
    con.execute("BEGIN")
    try:
        yield
    finally:
        con.execute("ROLLBACK")


@dataclass(frozen=True)
class Comparison:
    """One destination, attached as ``DESTINATION``, against a source, attached as ``SOURCE``, in one transaction."""

    con: duckdb.DuckDBPyConnection
    catalog: CatalogReader
    origin: ComparedSource
    subject: Subject
    at: int | None = None
    """The destination's snapshot; None for its newest."""

    def verdict(self) -> Verdict:
        # The destination is pinned before the source, so the head that is seen is never older than the position.
        cursor = read_position(self.con, DESTINATION, self.subject.pipeline, self.subject.destination, self.at)
        if cursor is None:
            return Verdict(self.subject.destination, ComparisonResult.NOT_SEEDED)
        table, head = self._source_table()
        self._require_same_source(cursor, table)
        value = self._canonical_value(table, cursor.position)
        part = SourceSlice(self.con, SOURCE, self.catalog, table, self.origin.routing, value, head)
        needs_seed = self.origin.routing.append_only or self.subject.seed_mode is SeedMode.LATEST
        seeded_at = self._seeded_at(cursor) if needs_seed else None
        expected = part.expected(cursor.position, self.subject.seed_mode, seeded_at)
        return self._judge(cursor, expected)

    def _judge(self, cursor: Position, expected: Expected) -> Verdict:
        found = self._found(expected.columns)
        differences = Multisets(
            self.con, expected.columns, expected.keys, found, expected.required, expected.rows
        ).differences()
        return Verdict(
            self.subject.destination,
            ComparisonResult.DIFFERENT if differences.total else ComparisonResult.EQUAL,
            cursor.position,
            expected.proven_at,
            int(self.con.execute(f"SELECT count(*) FROM ({found})").fetchall()[0][0]),
            differences,
            expected.note,
        )

    def _source_table(self) -> tuple[TableInfo, int]:
        head = int(self.con.execute(f"SELECT id FROM {ident(SOURCE)}.current_snapshot()").fetchall()[0][0])
        table = self.catalog.source_table(self.origin.schema, self.origin.table, head)
        if table is None:
            name = f"{self.origin.schema}.{self.origin.table}"
            raise SourceError(
                "source_gone", f"the source has no table {name} at snapshot {head}", "correct source.table"
            )
        return table, head

    def _require_same_source(self, cursor: Position, table: TableInfo) -> None:
        if cursor.table_uuid != table.table_uuid:
            raise DestinationError(
                "source_recreated",
                f"the destination holds rows of table {cursor.table_uuid}, but the source's is {table.table_uuid} now",
                "the source table was dropped and created again: reseed the destination",
            )
        wrong = moved(cursor.source, cursor.position, self.catalog.time_of(cursor.position))
        if wrong is not None:
            raise wrong
        if cursor.routing_value != self._canonical_value(table, cursor.position):
            raise DestinationError(
                "routing_value_changed",
                f"the destination holds the rows of {cursor.routing_value!r}, not of {self.subject.routing_value!r}",
                "reseed the destination, or give it its old routing_value back",
            )

    def _canonical_value(self, table: TableInfo, position: int) -> str:
        """The routing value in the spelling of the routing column's type at the position."""
        column = table.identified_at(self.origin.routing.field, position)
        if column is None:
            hint = "correct routing.field, or bring the column back"
            raise SourceError("schema_change", f"the source has no column {self.origin.routing.field!r}", hint)
        cast = spelled(f"CAST($1 AS {column.type})", column.type)
        return str(self.con.execute(f"SELECT {cast}", [self.subject.routing_value]).fetchall()[0][0])

    def _seeded_at(self, cursor: Position) -> int | None:
        """The source snapshot that this generation began with, by the seed's stamp; None where the stamp is gone."""
        with closing(CatalogReader.attached(self.subject.lake, self.con, DESTINATION)) as catalog:
            stamps = [stamp for text in catalog.stamps('"seed"') if (stamp := read_stamp(text)) is not None]
        life = (self.subject.pipeline, self.subject.destination, cursor.generation)
        mine = [s for s in stamps if (s.pipeline, s.destination, s.generation) == life and s.kind == "seed"]
        return max((stamp.through for stamp in mine), default=None)

    def _found(self, wanted: Sequence[Column]) -> str:
        """The destination's rows in the wanted columns. Raises ``table_mismatch`` unless it has exactly these.

        Columns that were added at the source since the destination's last change are still to come: all its rows
        show their default there.
        """
        table = path(DESTINATION, self.subject.schema, self.subject.table)
        if not is_table(self.con, DESTINATION, self.subject.schema, self.subject.table):
            name = f"{self.subject.schema}.{self.subject.table}"
            hint = "the table was dropped: reseed the destination"
            raise DestinationError("table_mismatch", f"the destination has no table {name}", hint)
        rows = table if self.at is None else f"{table} AT (VERSION => {self.at:d})"
        have = self.con.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {rows})").fetchall()
        if have != [(column.name, column.type) for column in wanted[: len(have)]]:
            raise DestinationError(
                "table_mismatch",
                f"the columns are ({_declared(have)}) instead of ({_declared([(c.name, c.type) for c in wanted])})",
                "the destination's table was altered: reseed the destination",
            )
        here = [ident(name) for name, _ in have]
        return f"SELECT {', '.join([*here, *map(default_of, wanted[len(have) :])])} FROM {rows}"


def _declared(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {declared}" for name, declared in columns)
