"""The oracle of topics: is a destination, at every snapshot it has, exactly what its stamps say of the topic?

At each of them it holds the records of one topic id with offsets in [start, position) of every partition, each once,
but those that the stamps count as rejected or name as skipped; with keys, what these records leave by key, and where
the topic is routed as well, of that what has the destination's routing value. Every value is compared: a row and what
it rescued are the record. The oracle knows the public face of a destination and the topic's own records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tests.world.destination import Destination, Finding
from tests.world.duck import name
from tests.world.lake import look_again, looked_at, metadata
from tests.world.oracle import MOVES, SCHEMA
from tests.world.stamps import BadStamp, Commit, Stamp, commits_of, offsets, parse
from tests.world.topic_truth import Fields, Offsets, Place, Skipped, TopicTruth, covers

OWN = "_kafka_"
"""How the names of columns begin that are not fields."""

RESCUED = "_rescued"
SHOWN = 3

CURSOR = ("generation", "position", "source_position", "source_lake", "source_table_uuid")


@dataclass(frozen=True)
class Cursor:
    """What a destination's cursor holds at one snapshot."""

    generation: int
    position: int
    offsets: Mapping[int, int]
    cluster: str
    topic: str


@dataclass
class TopicOracle:
    """One destination, in a lake of its own; each ``look`` judges the snapshots that came since the last one.

    ``stamp`` and ``seed`` are the latest, ``size`` is how many rows the table had then.
    """

    destination: Destination
    seen: int = 0
    compared: int = 0
    """Stamped snapshots whose rows were compared with the truth."""
    stamp: Stamp | None = None
    seed: Stamp | None = None
    start: Offsets = field(default_factory=dict)
    """Where the rows begin: at the last seed that was no rewind."""
    skipped: list[Skipped] = field(default_factory=list)
    """Since then."""
    cursor: Cursor | None = None
    size: int | None = None
    """None where the rows could not be read."""
    tokens: dict[str, int] = field(default_factory=dict)
    cursors: set[str] = field(default_factory=set)
    """Tables in which its cursor may be."""
    findings: list[Finding] = field(default_factory=list)

    def look(
        self, con: duckdb.DuckDBPyConnection, truths: Mapping[str, TopicTruth], *, arrived: TopicTruth | None = None
    ) -> list[Finding]:
        """Everything that is wrong since the last look. ``truths`` are by topic id, former ones included.

        With ``arrived`` the destination must also hold all that is known of that topic.
        """
        self.findings = []
        with looked_at(con, self.destination.lake) as alias:
            self.cursors = self._cursors(con, alias)
            for commit in commits_of(con, alias, self.destination.lake):
                if commit.snapshot > self.seen:
                    self._commit(con, alias, commit, truths)
                    self.seen = commit.snapshot
        if arrived is not None:
            self._arrival(arrived)
        return self.findings

    def _commit(
        self, con: duckdb.DuckDBPyConnection, alias: str, commit: Commit, truths: Mapping[str, TopicTruth]
    ) -> None:
        last, stamp = self.stamp, self._stamp(commit)
        if stamp is not None and stamp.kind == "drop":
            self.stamp = self.seed = self.cursor = self.size = None
            return
        moves = stamp is not None and stamp.kind in MOVES
        if stamp is not None and moves:
            self.stamp = stamp
            self.seed = stamp if stamp.kind == "seed" else self.seed
            if stamp.kind == "seed" and not stamp.rewound:
                self.start, self.skipped = stamp.through_at or {}, []
            self.skipped += [(partition, *span) for partition, span in stamp.skipped.items()]
        if self.stamp is None or self.seed is None:
            return
        before, truth = self.cursor, self._cursor(con, alias, commit.snapshot, self.stamp, truths)
        if truth is None:
            return
        if stamp is not None and moves:
            self._follows(commit.snapshot, last, stamp, before, truth)
        size = self.size
        self._holds(con, alias, commit.snapshot, truth)
        changed = (stamp.inserted - stamp.deleted) if stamp is not None and moves else 0
        if size is not None and self.size is not None and self.size - size != changed:
            self._find("growth", commit.snapshot, f"{changed} rows more by its stamp, but from {size} to {self.size}")
        self.compared += moves and self.size is not None

    def _stamp(self, commit: Commit) -> Stamp | None:
        """Of our own commits for this destination."""
        if not commit.is_ours:
            if not commit.is_bare_upkeep and commit.snapshot > 0:
                self._find("unstamped", commit.snapshot, f"by {commit.author!r}: {commit.changes}")
            return None
        try:
            stamp = parse(commit)
        except BadStamp as error:
            self._find("stamp", commit.snapshot, str(error))
            return None
        if stamp.token in self.tokens:
            self._find("token", commit.snapshot, f"token {stamp.token} is that of snapshot {self.tokens[stamp.token]}")
        self.tokens[stamp.token] = commit.snapshot
        if (stamp.pipeline, stamp.destination) != (self.destination.pipeline, self.destination.id):
            self._find("stamp", commit.snapshot, f"it speaks of {stamp.destination} of {stamp.pipeline}")
            return None
        if stamp.kind in MOVES and stamp.through_at is None:
            self._find("stamp", commit.snapshot, f"{stamp.kind} to {stamp.through} tells no offsets")
            return None
        return stamp

    # -- what a snapshot says -----------------------------------------------------------------------------------------

    def _cursor(
        self,
        con: duckdb.DuckDBPyConnection,
        alias: str,
        snapshot: int,
        stamp: Stamp,
        truths: Mapping[str, TopicTruth],
    ) -> TopicTruth | None:
        """The truth of the topic that the cursor names; None where it can't be believed, which is found."""
        try:
            self.cursor = self._stored(con, alias, snapshot)
        except BadStamp as error:
            self._find("cursor", snapshot, str(error))
            return None
        have = (self.cursor.generation, self.cursor.position, dict(self.cursor.offsets))
        if have != (stamp.generation, stamp.through, dict(stamp.through_at or {})):
            said = f"generation {stamp.generation} at {stamp.through_at}"
            self._find("cursor", snapshot, f"{have} is stored, and the last stamp says {said}")
        if self.cursor.topic not in truths:
            self._find("identity", snapshot, f"the cursor names the topic {self.cursor.topic}, which never was")
            return None
        return truths[self.cursor.topic]

    def _stored(self, con: duckdb.DuckDBPyConnection, alias: str, snapshot: int) -> Cursor:
        """Raises ``BadStamp`` unless there is exactly one."""
        found = []
        for table in self.cursors:
            at = f"{name(alias, SCHEMA, table)} AT (VERSION => {snapshot})"
            sql = f"SELECT {', '.join(CURSOR)} FROM {at} WHERE pipeline = ? AND destination = ?"
            with suppress(duckdb.CatalogException, duckdb.BinderException):  # it came later, or went
                found += con.execute(sql, [self.destination.pipeline, self.destination.id]).fetchall()
        if len(found) != 1:
            raise BadStamp(f"there are {len(found)} cursors")
        generation, position, spelled, origin, topic = found[0]
        return Cursor(generation, position, offsets(spelled, position), origin.partition("@")[0], topic)

    def _cursors(self, con: duckdb.DuckDBPyConnection, alias: str) -> set[str]:
        """Tables of ours that hold, or held, a cursor with the spelling of a topic's position."""
        kinds, lake = ("table", "schema", "column"), self.destination.lake
        tables = {kind: metadata(con, alias, f"ducklake_{kind}", lake) for kind in kinds}
        sql = (
            "SELECT DISTINCT t.table_name FROM {table} t JOIN {schema} s ON s.schema_id = t.schema_id"
            " JOIN {column} c ON c.table_id = t.table_id WHERE s.schema_name = ? AND c.column_name = 'source_position'"
        )
        return {found for (found,) in con.execute(sql.format(**tables), [SCHEMA]).fetchall()}

    def _follows(
        self, snapshot: int, last: Stamp | None, stamp: Stamp, before: Cursor | None, truth: TopicTruth
    ) -> None:
        """A stamp goes on from where the one before it ended, in one life and of one topic."""
        if stamp.kind == "seed":
            self._begins(snapshot, last, stamp, truth)
            return
        if last is None or last.through_at is None or stamp.through_at is None or before is None:
            self._find("range", snapshot, f"{stamp.kind} {stamp.range} of a destination that was never seeded")
            return
        if stamp.generation != last.generation:
            self._find("generation", snapshot, f"{stamp.kind} of generation {stamp.generation} over {last.generation}")
        gone = sum(behind - first for first, behind in stamp.skipped.values())
        is_next = stamp.after == last.through + gone and last.through < stamp.through
        goes_on = is_next and covers(stamp.through_at, last.through_at)
        if not goes_on:
            said = f"{stamp.range} to {stamp.through_at} after {last.range} to {last.through_at}"
            self._find("range", snapshot, said)
        if not covers(truth.newest, stamp.through_at):
            self._find("range", snapshot, f"it goes to {stamp.through_at}, and the topic ends at {truth.newest}")
        if self.cursor is not None and (before.cluster, before.topic) != (self.cursor.cluster, self.cursor.topic):
            self._find("identity", snapshot, f"one life goes on from topic {before.topic} to {self.cursor.topic}")
        wanted = len(truth.rejected(last.through_at, stamp.through_at, self.skipped))
        if stamp.rejected != wanted:
            self._find("rejected", snapshot, f"{stamp.rejected} are said to be rejected, and it had to be {wanted}")

    def _begins(self, snapshot: int, last: Stamp | None, stamp: Stamp, truth: TopicTruth) -> None:
        begin = stamp.through_at or {}
        if stamp.rewound:
            reached = {} if last is None else last.through_at or {}
            if not covers(reached, begin):
                self._find("range", snapshot, f"a rewind to {begin} of a destination that was at {reached}")
        elif truth.oldest is not None and not covers(truth.oldest, begin):
            self._find("range", snapshot, f"a life begins at {begin}, and the topic at {truth.oldest}")
        expected = -1 if last is None else last.through
        if stamp.after != expected:
            self._find("range", snapshot, f"a seed over position {expected} says that it begins after {stamp.after}")
        if last is not None and stamp.generation <= last.generation:
            self._find("generation", snapshot, f"a seed of generation {stamp.generation} over {last.generation}")
        if stamp.inserted or stamp.rejected:
            self._find("growth", snapshot, f"a life begins with {stamp.inserted} rows, {stamp.rejected} rejected")

    # -- what it holds ------------------------------------------------------------------------------------------------

    def _holds(self, con: duckdb.DuckDBPyConnection, alias: str, snapshot: int, truth: TopicTruth) -> None:
        assert self.seed is not None, "only a life that began has rows"
        assert self.stamp is not None, "only a life that began has rows"
        self.size = None
        try:
            have = self._rows(con, alias, snapshot)
        except duckdb.CatalogException:
            self._find("columns", snapshot, f"there is no table {self.destination.table} with partition and offset")
            return
        except duckdb.IOException as error:
            look_again(con)
            self._find("damaged", snapshot, f"a file of it is gone (H7): {error}")
            return
        self.size = len(have)
        self._compare(snapshot, have, truth.rows(self.start, self.stamp.through_at or {}, self.skipped))

    def _rows(self, con: duckdb.DuckDBPyConnection, alias: str, snapshot: int) -> list[tuple[Place, Fields]]:
        table = f"{name(alias, self.destination.schema, self.destination.table)} AT (VERSION => {snapshot})"
        found = con.execute(
            f"SELECT r._kafka_partition, r._kafka_offset, CAST(to_json(r) AS VARCHAR) FROM (SELECT * FROM {table}) AS r"
        ).fetchall()
        return [((partition, offset), _fields(json.loads(row))) for partition, offset, row in found]

    def _compare(self, snapshot: int, have: list[tuple[Place, Fields]], wanted: Mapping[Place, Fields]) -> None:
        times = Counter(place for place, _ in have)
        missing = sorted(wanted.keys() - times.keys())
        extra = sorted(times.keys() - wanted.keys())
        doubled = sorted(place for place, count in times.items() if count > 1)
        pairs = [(place, row, wanted[place]) for place, row in have if place in wanted]
        others = [pair for pair in pairs if not _same(pair[1], pair[2])]
        for what, found in (("missing", missing), ("too many", extra), ("there more than once", doubled)):
            if found:
                self._find("exact", snapshot, f"{len(found)} records are {what} of {len(wanted)}: {found[:SHOWN]}")
        if others:
            self._find("exact", snapshot, f"{len(others)} rows are not their records: {others[:SHOWN]}")

    def _arrival(self, truth: TopicTruth) -> None:
        if self.stamp is None or self.cursor is None:
            self._find("behind", None, "was never seeded")
        elif self.cursor.topic != truth.topic:
            self._find("behind", None, f"holds the topic {self.cursor.topic}, and now it is {truth.topic}")
        elif truth.whose is not None:
            self._keyed_arrival(truth, self.stamp.through_at or {})
        elif not covers(self.stamp.through_at or {}, truth.newest if truth.last is None else truth.last):
            self._find("behind", None, f"is at {self.stamp.through_at}, and the topic at {truth.last or truth.newest}")

    def _keyed_arrival(self, truth: TopicTruth, reached: Offsets) -> None:
        """A destination that no later record concerns stays where it is."""
        there, wanted = (truth.rows(self.start, end, self.skipped) for end in (reached, truth.newest))
        if there != wanted:
            said = f"is at {reached}, and up to {truth.newest} its {len(there)} rows become others, or {len(wanted)}"
            self._find("behind", None, said)

    def _find(self, rule: str, snapshot: int | None, detail: str) -> None:
        self.findings.append(Finding(rule, self.destination.id, snapshot, detail))


def _fields(row: Mapping[str, Any]) -> Fields:
    """A row without what it says of its place, and with what it rescued."""
    plain = {each: value for each, value in row.items() if value is not None and not each.startswith(OWN)}
    return plain | (plain.pop(RESCUED, None) or {})


def _same(one: Any, other: Any) -> bool:
    """Whether values are the same in JSON: a number as such, and no boolean."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[each], other[each]) for each in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
