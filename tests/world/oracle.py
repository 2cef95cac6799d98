"""The oracle: is a destination, at every snapshot it has, exactly what its stamps say it is?

It knows the public face of a destination (columns, rows, stamps, cursor) and what is true of the source; of the
services it knows nothing. It trusts nothing in between: neither counts, nor outcomes, nor logs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tests.world.destination import Destination, Finding
from tests.world.duck import name
from tests.world.holdings import Holdings
from tests.world.identities import Identities, numbered_columns
from tests.world.lake import Lake, look_again, looked_at, metadata, opened
from tests.world.layouts import OWNER
from tests.world.owners import AUTHOR as OWNER_OF_COLUMNS
from tests.world.owners import Act
from tests.world.recovery import Past
from tests.world.rows import Column, Row, columns_of, minus, rows_of
from tests.world.stamps import BadStamp, Commit, Stamp, commits_of, parse
from tests.world.stock import disagreements, stock_reader
from tests.world.truth import Truth

SCHEMA = "_viaduck"
SHOWN_ROWS = 3


def check(
    con: duckdb.DuckDBPyConnection,
    destination: Destination,
    truth: Truth,
    *,
    head: int | None = None,
    ours: bool = True,
) -> list[Finding]:
    """Everything that is wrong with a destination; nothing means that it is exact.

    With ``head`` it must also have got so far. ``ours`` says that nobody but Viaduck has written to the lake.
    """
    with looked_at(con, destination.lake) as alias:
        return _Check(con, alias, destination, truth, ours).run(head)


def check_all(
    con: duckdb.DuckDBPyConnection,
    destinations: Iterable[Destination],
    truth: Truth,
    *,
    head: int | None = None,
    compared: Counter[str] | None = None,
    seen: Counter[str] | None = None,
    pasts: Sequence[Past] = (),
    looks_back: int | None = None,
    most: int | None = None,
) -> list[Finding]:
    """``check`` for each of them, those that share a lake together.

    ``compared`` counts, by destination, the stamped snapshots whose rows were compared with the truth.
    ``seen`` has, by destination, the newest snapshot of an earlier look, and is brought up to date: the rows of those
    before it are not read again, while all that stamps say is judged as a whole.
    ``pasts`` are histories of the source before ``truth``, oldest first.
    ``looks_back``: a stock reader reads at most so many of the snapshots from before the last upkeep, else all of them.
    ``most``: of each destination the rows of at most so many snapshots are read, from its first to its newest.
    """
    by_lake: dict[Lake, list[Destination]] = {}
    for destination in destinations:
        by_lake.setdefault(destination.lake, []).append(destination)
    findings = []
    for lake, mine in by_lake.items():
        if head is None and not lake.exists:
            continue  # its tenants were parked before anything was made, and need not be anywhere
        with looked_at(con, lake) as alias:
            for one in mine:
                checking = _Check(con, alias, one, truth, ours=True, pasts=pasts)
                checking.seen, checking.looks_back = 0 if seen is None else seen[one.id], looks_back
                checking.most = most
                findings += checking.run(head)
                if seen is not None:
                    seen[one.id] = checking.last
                if compared is not None:
                    compared[one.id] += checking.compared
    return findings


def check_source(con: duckdb.DuckDBPyConnection, lake: Lake, truth: Truth) -> list[Finding]:
    """Viaduck never writes to the source: no stamp of its own, no schema, no snapshot that nobody knows."""
    with opened(con, lake) as alias:
        commits = commits_of(con, alias, lake)
    first = next((commit.snapshot for commit in commits if truth.knows(commit.snapshot)), 0)
    return [
        Finding("source_written", "source", commit.snapshot, commit.changes)
        for commit in commits
        if commit.is_ours
        or '"viaduck"' in (commit.extra or "")
        or SCHEMA in commit.changes
        or (commit.snapshot > first and not truth.knows(commit.snapshot))
    ]


MOVES = ("seed", "changes", "advance")
"""Kinds of stamps of commits that move a destination's position."""


@dataclass
class _Check:
    """One destination on its way through its lake's snapshots, oldest first.

    ``stamp`` and ``seed`` are the latest of the destination's own, ``columns`` and ``size`` what its table had then.
    """

    con: duckdb.DuckDBPyConnection
    alias: str
    destination: Destination
    truth: Truth
    ours: bool
    pasts: Sequence[Past] = ()
    age: int = 0
    """How many of the pasts had ended when the latest stamp was made."""
    altered: bool = False
    """The table's owner has altered it so that rows have lost values, and no change or seed of ours has come since."""
    whole: bool = True
    """The lake still has its first snapshot, so the destination's whole life can be seen."""
    stamp: Stamp | None = None
    seed: Stamp | None = None
    buried: int = 0
    """The generation of the last drop."""
    columns: tuple[Column, ...] = ()
    identities: Identities = field(default_factory=Identities)
    size: int = 0
    sized: bool = True
    """``size`` is known: it is not where the snapshot before was left out."""
    seen: int = 0
    """Of the snapshots before this one only the stamps are looked at."""
    last: int = 0
    """The lake's newest snapshot."""
    compared: int = 0
    """Stamped snapshots whose rows were compared with the truth."""
    tokens: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    stock: duckdb.DuckDBPyConnection | None = None
    looks_back: int | None = None
    most: int | None = None
    read: frozenset[int] | None = None
    """The snapshots whose rows are read; None: of all."""
    kept_up: frozenset[int] = frozenset()
    """Snapshots up to the last upkeep, at which a stock reader looks."""
    newest: int = 0
    """The destination's newest snapshot; 0 if none is its own."""
    buckets: bool = False
    """The lake's owner has made ``bucket()`` partitions."""

    def __post_init__(self) -> None:
        self.truths = [*(past.truth for past in self.pasts), self.truth]
        self._believe(0)

    def _believe(self, age: int) -> None:
        self.age, self.truth = age, self.truths[age]
        self.holdings = Holdings(self.destination, self.truth)

    def run(self, head: int | None) -> list[Finding]:
        commits = commits_of(self.con, self.alias, self.destination.lake)
        self.whole, self.last = commits[0].snapshot == 0, commits[-1].snapshot
        self.seen = self.seen if self.seen <= self.last else 0  # else it is another lake
        self.cursors = [table for table in self._cursor_tables() if self._cursor_rows(name(self.alias, SCHEMA, table))]
        self.tables = self._table_ids()
        self.read = None if self.most is None else _spread(self._own(commits), self.most)
        with self._stock_reader(commits):
            for commit in commits:
                if commit.snapshot > 0:
                    self._commit(commit)
        if head is not None:
            self._arrival(head)
        return self.findings

    @contextmanager
    def _stock_reader(self, commits: Sequence[Commit]) -> Iterator[None]:
        """Another DuckDB reads along where our upkeep may have made the past wrong for it (H1), and at the end."""
        self.kept_up = self._kept_up(commits)
        self.newest = self._newest(commits)
        if not (self.kept_up or self.newest) or not self.ours or not self.destination.lake.is_local:
            yield
            return
        kinds = metadata(self.con, self.alias, "ducklake_partition_column", self.destination.lake)
        self.buckets = bool(self.con.execute(f"SELECT 1 FROM {kinds} WHERE transform LIKE 'bucket%'").fetchall())
        with stock_reader(self.destination.lake) as self.stock:
            yield
        self.stock = None

    def _kept_up(self, commits: Sequence[Commit]) -> frozenset[int]:
        last = max((each.snapshot for each in commits if each.is_upkeep), default=0)
        before = [each for each in commits if 0 < each.snapshot <= last]
        if self.looks_back is None:
            return frozenset(each.snapshot for each in before)
        return _spread(self._own(before), self.looks_back)

    def _own(self, commits: Sequence[Commit]) -> list[int]:
        """Snapshots in which the destination's table or cursor may have become another."""
        return [each.snapshot for each in commits if each.changes_columns or each.names(self.tables)]

    def _commit(self, commit: Commit) -> None:
        if commit.author == OWNER_OF_COLUMNS:
            self._alters(commit)
            return
        stamp = self._stamp(commit) if commit.is_ours else None
        if not commit.is_ours and self.ours and not commit.is_bare_upkeep and not _is_layout(commit):
            self._find("unstamped", commit.snapshot, f"by {commit.author!r}: {commit.changes}")
        if stamp is not None and self._is_mine(stamp) and stamp.kind in MOVES:
            self._moved(commit, stamp)
            return
        if stamp is not None and self._is_mine(stamp) and stamp.kind == "drop":
            self._dropped(commit, stamp)
            return
        if stamp is not None and stamp.kind in ("provision", "maintenance") and (stamp.deleted or stamp.inserted):
            self._find("growth", commit.snapshot, f"{stamp.kind} says that it changed rows")
        if commit.changes_columns or commit.names(self.tables):
            self._holds(commit)

    def _alters(self, commit: Commit) -> None:
        """The owner of a table is about to alter it, or has: until then, and where values are lost, it holds nothing
        that could be compared. What we commit to it afterwards has to be right, or must not be committed."""
        if commit.names(self.tables):
            self.columns = ()
            self.altered |= Act(commit.message or "").loses

    def _dropped(self, commit: Commit, stamp: Stamp) -> None:
        """Table and cursor are gone; a life after this one begins anew, in a later generation."""
        if self.stamp is not None and stamp.generation <= self.stamp.generation:
            self._find("generation", commit.snapshot, f"a drop of {stamp.generation} over {self.stamp.generation}")
        if self.stamp is not None and self.sized and stamp.deleted != self.size:
            self._find("growth", commit.snapshot, f"{stamp.deleted} rows dropped of {self.size}")
        self.stamp = self.seed = None
        self.columns, self.size, self.sized, self.buried = (), 0, True, stamp.generation
        self.identities = Identities()

    def _newest(self, commits: Sequence[Commit]) -> int:
        """The destination's newest snapshot, by whichever path it was committed."""
        moved = (self._moved_by(commit) for commit in commits)
        return max((stamp.snapshot for stamp in moved if stamp is not None), default=0)

    def _moved_by(self, commit: Commit) -> Stamp | None:
        """The stamp of a commit that moved this destination; of what can't be read the judge complains elsewhere."""
        try:
            stamp = parse(commit) if commit.is_ours else None
        except BadStamp:
            return None
        return stamp if stamp is not None and self._is_mine(stamp) and stamp.kind in MOVES else None

    def _is_mine(self, stamp: Stamp) -> bool:
        return (stamp.pipeline, stamp.destination) == (self.destination.pipeline, self.destination.id)

    def _stamp(self, commit: Commit) -> Stamp | None:
        try:
            stamp = parse(commit)
        except BadStamp as error:
            self._find("stamp", commit.snapshot, str(error))
            return None
        if stamp.token in self.tokens:
            self._find("token", commit.snapshot, f"token {stamp.token} is that of snapshot {self.tokens[stamp.token]}")
        self.tokens[stamp.token] = commit.snapshot
        return stamp

    # -- a snapshot that moves this destination -----------------------------------------------------------------------

    def _moved(self, commit: Commit, stamp: Stamp) -> None:
        snapshot, last, before = commit.snapshot, self.stamp, self.size
        self._enter(snapshot, last, stamp)
        known_before = self.sized and (last is not None or self.whole)
        if not self.truth.knows(stamp.through):
            self._find("range", snapshot, f"{stamp.range} ends at no snapshot of the source")
            return
        if last is not None or self.whole:
            self._continues(snapshot, last, stamp)
        self.stamp = stamp
        self.altered &= stamp.kind == "advance"
        self.identities = Identities() if stamp.kind == "seed" else self.identities
        self.seed = stamp if stamp.kind == "seed" or self.seed is None else self.seed
        could_be_read = self._holds(commit)
        self.compared += could_be_read
        if could_be_read and known_before and stamp.inserted - stamp.deleted != self.size - before:
            said = f"{stamp.inserted} in and {stamp.deleted} out"
            self._find("growth", snapshot, f"{said}, but the table went from {before} to {self.size} rows")

    def _enter(self, snapshot: int, last: Stamp | None, stamp: Stamp) -> None:
        """The history that the source has by now; only a seed leaves a position of another one behind."""
        lake = self.destination.lake
        age = sum(past.ended.get(lake, -1) < snapshot for past in self.pasts)
        lost = [past.kept for past in self.pasts[self.age : age] if last is not None and past.kept < last.through]
        if lost and stamp.kind != "seed":
            self._find("history", snapshot, f"{stamp.kind} {stamp.range} goes on from what ended at {lost[0]}")
        self._believe(age)

    def _continues(self, snapshot: int, last: Stamp | None, stamp: Stamp) -> None:
        """A range follows the one before, without a hole in which something happened to this destination."""
        if stamp.kind == "seed":
            self._seeds(snapshot, last, stamp)
        elif last is None:
            self._find("range", snapshot, f"{stamp.kind} {stamp.range} of a destination that was never seeded")
        else:
            self._follows(snapshot, last, stamp)

    def _seeds(self, snapshot: int, last: Stamp | None, stamp: Stamp) -> None:
        expected = -1 if last is None else last.through
        if stamp.after != expected:
            self._find("range", snapshot, f"a seed over position {expected} says that it begins after {stamp.after}")
        if last is not None and stamp.generation <= last.generation:
            self._find("generation", snapshot, f"a seed of generation {stamp.generation} over {last.generation}")
        if stamp.generation <= self.buried:
            self._find("generation", snapshot, f"a seed of generation {stamp.generation} after a drop of {self.buried}")

    def _follows(self, snapshot: int, last: Stamp, stamp: Stamp) -> None:
        if stamp.generation != last.generation:
            self._find("generation", snapshot, f"{stamp.kind} of generation {stamp.generation} over {last.generation}")
        if not last.through <= stamp.after <= stamp.through or last.through == stamp.through:
            self._find("range", snapshot, f"{stamp.range} after {last.range}")
            return
        quiet_until = stamp.through if stamp.kind == "advance" else stamp.after
        missed = self.holdings.first_change(last.through, quiet_until)
        if missed is not None:
            detail = f"{stamp.kind} {stamp.range} after {last.range} left out snapshot {missed}"
            self._find("skipped", snapshot, detail)

    # -- what every snapshot holds, whoever made it -------------------------------------------------------------------

    def _holds(self, commit: Commit) -> bool:
        """Columns, rows and cursor are what the destination's last stamp says. False where no rows can be compared."""
        if self.stamp is None or self.seed is None or self.altered:
            return False
        if commit.snapshot < self.seen or (self.read is not None and commit.snapshot not in self.read):
            self.columns, self.sized = (), False
            return False
        self._cursor(commit.snapshot, self.stamp)
        if not self._has_columns(commit, self.stamp):
            return False
        return self._has_rows(commit.snapshot, self.seed, self.stamp)

    def _has_columns(self, commit: Commit, stamp: Stamp) -> bool:
        snapshot, have = commit.snapshot, self.columns
        if commit.changes_columns or not have:
            try:
                have = columns_of(self.con, self._table(snapshot))
            except duckdb.CatalogException:
                self._find("columns", snapshot, f"there is no table {self.destination.schema}.{self.destination.table}")
                return False
        wanted = self.truth.columns(stamp.through)
        if have != wanted:
            self._find("columns", snapshot, f"{_spell(have)}, not {_spell(wanted)} as the source at {stamp.through}")
            return False
        if commit.changes_columns or not self.identities.known:
            self._identify(snapshot, stamp)
        self.columns = have
        return True

    def _identify(self, snapshot: int, stamp: Stamp) -> None:
        there = self.destination
        own = numbered_columns(self.con, self.alias, there.lake, there.schema, there.table, snapshot)
        for said in self.identities.take(self.truth.ids(stamp.through), [each.number for each in own]):
            self._find("identity", snapshot, said)

    def _has_rows(self, snapshot: int, seed: Stamp, stamp: Stamp) -> bool:
        """Whether the rows could be read, and so the size is known."""
        try:
            have = rows_of(self.con, self._table(snapshot), self.columns)
        except duckdb.IOException as error:
            look_again(self.con)
            self._find("damaged", snapshot, f"a file of it is gone (H7): {error}")
            return False
        missing = minus(self.holdings.required(seed, stamp), have)
        extra = minus(have, self.holdings.allowed(seed, stamp))
        self.size, self.sized = have.total(), True
        if missing or extra:
            detail = f"{stamp.kind} {stamp.range}: {len(missing)} rows missing, {len(extra)} too many of {self.size}"
            self._find("exact", snapshot, detail, missing, extra)
        if self.stock is not None and (snapshot in self.kept_up or snapshot == self.newest):
            table = name("stock", self.destination.schema, self.destination.table) + f" AT (VERSION => {snapshot})"
            for said in disagreements(self.stock, table, self.columns, have, filtered=not self.buckets):
                self._find("stock", snapshot, f"a stock reader {said}")
        return True

    def _table(self, snapshot: int) -> str:
        return f"{name(self.alias, self.destination.schema, self.destination.table)} AT (VERSION => {snapshot})"

    def _cursor(self, snapshot: int, stamp: Stamp) -> None:
        """The position that is stored in a snapshot is the one that the last stamp tells."""
        at = f" AT (VERSION => {snapshot})"
        found = [row for table in self.cursors for row in self._cursor_rows(name(self.alias, SCHEMA, table) + at)]
        if found != [(stamp.generation, stamp.through)]:
            expected = f"generation {stamp.generation} at {stamp.through}"
            self._find("cursor", snapshot, f"expected one, {expected}; found {found}")

    def _cursor_tables(self) -> list[str]:
        """Tables of ours that hold a cursor, for whomever."""
        rows = self._metadata(
            "SELECT t.table_name FROM {table} t JOIN {schema} s ON s.schema_id = t.schema_id"
            " JOIN {column} c ON c.table_id = t.table_id AND c.end_snapshot IS NULL AND t.end_snapshot IS NULL"
            " AND c.column_name IN ('pipeline', 'destination', 'generation', 'position')"
            " WHERE s.schema_name = ? GROUP BY t.table_name HAVING count(*) = 4",
            SCHEMA,
        )
        return [found for (found,) in rows]

    def _table_ids(self) -> set[int]:
        """Ids that the destination's table has had, and those of its cursors, be they one as they should or more."""
        rows = self._metadata(
            "SELECT t.table_id FROM {table} t JOIN {schema} s ON s.schema_id = t.schema_id"
            " WHERE (s.schema_name = ? AND t.table_name IN (SELECT unnest(?)))"
            " OR (s.schema_name = ? AND t.table_name = ?)",
            SCHEMA,
            self.cursors,
            self.destination.schema,
            self.destination.table,
        )
        return {int(found) for (found,) in rows}

    def _metadata(self, sql: str, *values: str | list[str]) -> list[tuple[Any, ...]]:
        kinds, lake = ("table", "schema", "column"), self.destination.lake
        tables = {kind: metadata(self.con, self.alias, f"ducklake_{kind}", lake) for kind in kinds}
        return self.con.execute(sql.format(**tables), values).fetchall()

    def _cursor_rows(self, table: str) -> list[tuple[int, int]]:
        sql = f"SELECT generation, position FROM {table} WHERE pipeline = ? AND destination = ?"
        return self.con.execute(sql, [self.destination.pipeline, self.destination.id]).fetchall()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _arrival(self, head: int) -> None:
        """The position has reached the head, or nothing of this destination changed between the two."""
        lost = self.stamp is not None and any(past.kept < self.stamp.through for past in self.pasts[self.age :])
        self._believe(len(self.pasts))
        if self.stamp is None:
            self._find("behind", None, "was never seeded")
        elif lost:
            self._find("behind", None, f"is at {self.stamp.through} of a history that is no more")
        elif self.stamp.through < head:
            missed = self.holdings.first_change(self.stamp.through, head)
            if missed is not None:
                detail = f"is at {self.stamp.through} and lacks snapshot {missed}; the head is {head}"
                self._find("behind", None, detail)

    def _find(
        self, rule: str, snapshot: int | None, detail: str, missing: Sequence[Row] = (), extra: Sequence[Row] = ()
    ) -> None:
        shown = (tuple(missing[:SHOWN_ROWS]), tuple(extra[:SHOWN_ROWS]))
        self.findings.append(Finding(rule, self.destination.id, snapshot, detail, *shown))


def _spread(snapshots: Sequence[int], most: int) -> frozenset[int]:
    """At most so many of them, from the first to the last."""
    step = max(1.0, (len(snapshots) - 1) / max(1, most - 1))
    return frozenset(snapshots[round(number * step)] for number in range(min(most, len(snapshots))))


def _is_layout(commit: Commit) -> bool:
    """Whether the owner of the lake changed how a table's files are laid out, and nothing else."""
    return commit.author == OWNER and re.fullmatch(r"altered_table:\d+", commit.changes) is not None


def _spell(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)
