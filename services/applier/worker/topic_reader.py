"""A Kafka topic as the source of a task: records between two vectors, as typed rows in the worker's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import duckdb
import pyarrow as pa

from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.destination.foreign_keys import KeysOfRange
from services.applier.apply.source.reading import ChangeCounts, LeftOut, Reading
from services.applier.apply.source.row_counts import count_keys, count_rows
from services.applier.model.task import RecordCounts, SourceTopic, Target
from services.applier.records.column_names import RESCUED
from services.applier.records.parse import ColumnsChange, RecordParser, parse
from services.applier.records.parsed_records import PLACE_COLUMN, ParsedRecords
from services.applier.records.record_batch import RecordBatch, batch_of, together
from services.applier.records.rejection import Rejection
from services.applier.records.routing import Routed, route
from services.applier.worker.in_flight import Numbered
from services.applier.worker.portions import Portions
from services.applier.worker.source_reader import Shared
from services.applier.worker.topic_clients import BrokerClients
from services.applier.worker.topic_ranges import Ranged, TopicRanges, begin_of, vector_of
from services.applier.worker.unrouted import unrouted_of
from shared.contracts.errors import DestinationError
from shared.contracts.messages import ItemKind
from shared.contracts.positions import Vector
from shared.kafka.topic_log import TopicIdentity
from shared.lake.catalog.reader import Column, TableInfo
from shared.lake.connection.engine import release
from shared.lake.routing_value import spelled
from shared.lake.sql import ident

LARGE_BYTES = 16_000_000
"""What reading so many bytes needed is returned to the system before they are written, and the rest of it then."""


class MemoryInstance(Protocol):
    """An instance of the worker that no lake is attached to."""

    def cursor(self) -> duckdb.DuckDBPyConnection: ...
    def give_back(self) -> None: ...


@dataclass(frozen=True)
class FetchedRecords:
    """What a reading is parsed of; ``incomplete`` are places of records that the destination's rows don't complete."""

    identity: TopicIdentity
    batch: RecordBatch
    """Empty where records were staged as they came: of those, none is found incomplete."""
    present: Sequence[Column]
    bytes: int = 0
    incomplete: frozenset[int] = frozenset()
    skipped: int = 0
    """Records before them that are gone."""
    left: pa.Table | None = None
    """Keys of rows that the destination has, and of which the newest record went elsewhere (``k0``, …)."""


@dataclass(frozen=True)
class RoutedRange:
    """The records of a range by routing values, for several targets."""

    ranged: Ranged
    routed: Routed


class TopicReader:
    """One topic, through the worker's clients."""

    def __init__(
        self,
        clients: BrokerClients,
        memory: MemoryInstance,
        answers: CursorAnswers,
        source: SourceTopic,
        routed: Set[str] = frozenset(),
    ) -> None:
        """``routed``: the routing values of all destinations of the pipeline."""
        self._routed_values = routed
        self._clients = clients
        self._memory = memory
        self._answers = answers
        self._source = source
        self._ranges = TopicRanges(clients, source)
        self._parsed: dict[int, ParsedRecords] = {}
        self._shared: RoutedRange | None = None

    def table(self) -> TableInfo:
        with self._clients.of(self._source) as clients:
            return self._table(clients.log.identity())

    def time_of(self, snapshot: int) -> datetime | None:  # noqa: ARG002 - a topic's id tells its histories apart
        return None

    def parts(self, group: Sequence[Numbered]) -> None:  # noqa: ARG002 - a reading is bounded by bytes
        return None

    def share(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Shared | None:
        """The records of a topic that is routed, read once. Those that may be of any target are brought outside before
        one of them moves on."""
        self._shared = None
        if self._source.routing is None:
            return None
        if kind is not ItemKind.CHANGES:
            return Shared()
        _, target = group[0]
        batches = list[RecordBatch]()
        ranged = self._ranges.read(target.item, lambda messages: batches.append(batch_of(messages)), sparing=sparing)
        con = self._memory.cursor()
        try:
            routed = route(
                con, together(batches), self._source.form, self._source.routing, self._clients.schemas(self._source)
            )
        finally:
            release(con)
        if routed.unreadable and not self._source.parks_bad:
            rejected = self._clients.rejected(self._source)
            rejected.deliver_once(ranged.identity.topic_id, self._source.table, routed.unreadable)
        self._shared = RoutedRange(ranged, routed)
        ends = begin_of(target.item), ranged.reached.vector
        found = unrouted_of(routed, self._routed_values, target.item.pipeline, ranged.identity.topic_id, ends)
        return Shared(ranged.reached.records, found)

    def read(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        """The net change of one target; ``internal`` is raised for several, which are then read one by one.

        TLA: ``ApplyRecords``.
        """
        if len(group) > 1:
            raise DestinationError("internal", "a topic is read for one destination at a time", "it is tried again")
        ((number, target),) = group
        if kind is not ItemKind.CHANGES:
            return self._nothing(number, target, of_seed=kind is ItemKind.SEED)
        if self._shared is not None:
            return self._routed(number, target, self._shared)
        return self._changes(number, target, sparing=sparing)

    def forget(self, reading: Reading) -> None:
        try:
            self._drop(reading)
        finally:
            release(reading.con)
        if reading.rows_read * reading.row_bytes >= LARGE_BYTES:
            self._memory.give_back()

    def _drop(self, reading: Reading) -> None:
        parsed = self._parsed.pop(reading.number, None)
        for name in ("rows", "touched"):
            reading.con.execute(f"DROP VIEW IF EXISTS {reading.memory(name)}")
        reading.con.execute(f"DROP TABLE IF EXISTS {reading.memory('left')}")
        if parsed is not None:
            parsed.drop()

    # -- what is read -------------------------------------------------------------------------------------------------

    def _nothing(self, number: int, target: Target, *, of_seed: bool) -> Reading:
        """No record: a life begins with an empty table, in the columns that are known before the first one."""
        with self._clients.of(self._source) as clients:
            identity = clients.log.identity()
        present = () if of_seed else self._answers.columns(target)
        return self._reading(number, FetchedRecords(identity, batch_of([]), present), vector_of(target.item.through_at))

    def _changes(self, number: int, target: Target, *, sparing: bool) -> Reading:
        """Records are let go once they are rows; where they change the columns, which is rare, they are read again."""
        present = self._answers.columns(target)
        try:
            return self._parsed_meanwhile(number, target, present, sparing=sparing, lets_go=True)
        except ColumnsChange:
            return self._parsed_meanwhile(number, target, present, sparing=sparing, lets_go=False)

    def _parsed_meanwhile(
        self, number: int, target: Target, present: Sequence[Column], *, sparing: bool, lets_go: bool
    ) -> Reading:
        """Records become rows in another thread while more of them are read."""
        item, source, con = target.item, self._source, self._memory.cursor()
        schemas = self._clients.schemas(source)
        parser = RecordParser(con, source.form, present, datetime.now(UTC), schemas, lets_go=lets_go)
        try:
            with Portions(parser.add) as portions:
                ranged = self._ranges.read(item, portions.take, sparing=sparing)
            parsed = parser.finish()
            if ranged.reached.bytes >= LARGE_BYTES:
                self._memory.give_back()
        except BaseException:
            parser.drop()
            release(con)
            raise
        reached, skipped = ranged.reached, item.skipped.records if item.skipped else 0
        fetched = FetchedRecords(ranged.identity, parser.whole, present, reached.bytes, skipped=skipped)
        reading = self._empty(ranged.identity, reached.vector, con)
        with self._forgotten_if_failed(reading):
            self._fill(reading, number, fetched, parsed)
        reading.rows_read, reading.seconds["feed"] = reached.records, ranged.seconds
        reading.row_bytes = reached.bytes / max(1, reached.records)
        return reading

    def _routed(self, number: int, target: Target, shared: RoutedRange) -> Reading:
        """Of what was read for several, the target's."""
        ranged, routed = shared.ranged, shared.routed
        if routed.unreadable and self._source.parks_bad:
            raise _parking(routed.unreadable[0])
        value = target.destination.routing_value
        batch, left = routed.of(value), self._left(target, routed)
        if value not in routed.places and not left:
            reading = self._empty(ranged.identity, ranged.reached.vector, self._memory.cursor())
            reading.counts[number], reading.is_quiet = ChangeCounts(), True
        else:
            mine = batch or batch_of([])
            fetched = FetchedRecords(ranged.identity, mine, self._answers.columns(target), mine.bytes, left=left)
            reading = self._reading(number, fetched, ranged.reached.vector)
            reading.row_bytes = mine.bytes / max(1, len(mine))
            self._require_routed(reading, target)
        reading.seconds["feed"] = ranged.seconds
        return reading

    def _left(self, target: Target, routed: Routed) -> pa.Table | None:
        """The keys of rows that the target has, and of which the newest record of the range went elsewhere."""
        keys = routed.keys
        if keys is None or not keys.rows.num_rows:
            return None
        found = KeysOfRange(keys.rows, self._source.form.key_columns, keys.types, keys.harmless)
        return self._answers.foreign_keys(target, found)

    def _require_routed(self, reading: Reading, target: Target) -> None:
        """Raises ``internal`` for a row of another tenant: none may ever leave the worker. With keys also for a record
        that is bad here and was not when it was routed: other destinations delete their rows of its key."""
        column = next(each for each in reading.columns if each.name == self._source.routing)
        text = spelled(ident(column.name), column.type)
        sql = f"SELECT count(*) FROM {reading.memory('rows')} WHERE {text} IS DISTINCT FROM $value"
        found = reading.con.execute(sql, {"value": target.destination.routing_value}).fetchall()[0][0]
        bad = reading.records.rejected if reading.records is not None and reading.keys else 0
        if found or bad:
            self.forget(reading)
            wrong = f"{found} rows for {target.destination.key} are of another routing value than its own"
            said = wrong if found else f"{bad} records for {target.destination.key} are bad for it alone"
            raise DestinationError("internal", said, "report this; nothing was written")

    def _reading(self, number: int, fetched: FetchedRecords, reached: Vector) -> Reading:
        reading = self._empty(fetched.identity, reached, self._memory.cursor())
        with self._forgotten_if_failed(reading):
            self._fill(reading, number, fetched, self._parse(reading, fetched))
        return reading

    @contextmanager
    def _forgotten_if_failed(self, reading: Reading) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.forget(reading)
            raise

    def _empty(self, identity: TopicIdentity, reached: Vector, con: duckdb.DuckDBPyConnection) -> Reading:
        return Reading(
            con, self._table(identity), (), reached.records, only_inserts=False, routing="",
            keys=self._source.form.key_columns, through_at=reached.text,
        )  # fmt: skip

    def _parse(self, reading: Reading, fetched: FetchedRecords) -> ParsedRecords:
        return parse(
            reading.con, fetched.batch, self._source.form, fetched.present, datetime.now(UTC), fetched.incomplete,
            self._clients.schemas(self._source),
        )  # fmt: skip

    def _fill(self, reading: Reading, number: int, fetched: FetchedRecords, parsed: ParsedRecords) -> None:
        """Show what was parsed as a transaction takes it."""
        self._parsed[reading.number] = parsed
        reading.columns, reading.promotions = parsed.columns, parsed.promotions
        reading.table = self._table(fetched.identity, parsed.columns)
        reading.records = _counted(parsed, fetched)
        reading.left_out = _asked(parsed)
        reading.refuse = (
            None if parsed.asking is None else lambda places: self._refuse(reading, number, fetched, places)
        )
        reading.before_commit = (lambda: self._deliver(parsed)) if parsed.rejected else None
        self._show(reading, parsed, number, fetched.left)
        if parsed.rejected:
            self._judge(reading, parsed, number)

    def _refuse(self, reading: Reading, number: int, fetched: FetchedRecords, places: Sequence[int]) -> None:
        self._drop(reading)
        reading.fetched.clear()
        less = replace(fetched, incomplete=fetched.incomplete | set(places))
        self._fill(reading, number, less, self._parse(reading, less))

    def _show(self, reading: Reading, parsed: ParsedRecords, number: int, left: pa.Table | None) -> None:
        """The parsed rows and keys as a transaction takes them, and with the keys those that ``left``."""
        reading.counts[number] = ChangeCounts()
        hidden = f"{number:d} AS {reading.number_column}, false AS {reading.was_there_column}"
        rows, keys = parsed.memory.parsed_rows, parsed.memory.parsed_keys
        reading.con.execute(f"CREATE VIEW {reading.memory('rows')} AS SELECT {hidden}, p.* FROM {rows} AS p")
        if parsed.is_keyed:
            named = ", ".join(f"{ident(name)} AS k{place}" for place, name in enumerate(reading.keys))
            shown = reading.memory("touched")
            others = "" if left is None else f" UNION ALL {self._gone(reading, number, left)}"
            reading.con.execute(f"CREATE VIEW {shown} AS SELECT {number:d} AS d, {named} FROM {keys}{others}")
            count_keys(reading)
        count_rows(reading, unique=False)

    def _gone(self, reading: Reading, number: int, left: pa.Table) -> str:
        """The query of keys that left; none of them is a key of the reading's own records."""
        typed = ", ".join(f"CAST(k{n:d} AS {reading.type_of(key)}) AS k{n:d}" for n, key in enumerate(reading.keys))
        name, coming = reading.memory("left"), f"left_{reading.number:d}"
        reading.con.register(coming, left)
        try:
            reading.con.execute(f"CREATE TABLE {name} AS SELECT {typed} FROM {ident(coming)}")
        finally:
            reading.con.unregister(coming)
        return f"SELECT {number:d} AS d, {', '.join(f'k{n:d}' for n in range(len(reading.keys)))} FROM {name}"

    def _judge(self, reading: Reading, parsed: ParsedRecords, number: int) -> None:
        if self._source.parks_bad:
            reading.refused[number] = _parking(parsed.rejected[0])

    def _deliver(self, parsed: ParsedRecords) -> None:
        self._clients.rejected(self._source).deliver(self._source.table, parsed.rejected)

    def _table(self, identity: TopicIdentity, columns: Sequence[Column] = ()) -> TableInfo:
        return TableInfo("", self._source.table, 0, identity.topic_id, identity.cluster, 0, tuple(columns))


def _parking(first: Rejection) -> DestinationError:
    return DestinationError(
        "value_refused",
        f"offset {first.offset} of partition {first.partition} can't become a row: {first.text}",
        "set source.on_bad: reject, then resume",
    )


def _asked(parsed: ParsedRecords) -> LeftOut | None:
    asking = parsed.asking
    return None if asking is None else LeftOut(asking.name, asking.count, asking.wanted, PLACE_COLUMN, RESCUED)


def _counted(parsed: ParsedRecords, fetched: FetchedRecords) -> RecordCounts:
    return RecordCounts(
        landed=parsed.landed,
        rejected=len(parsed.rejected),
        tombstones=parsed.tombstones,
        rescued=sum(parsed.rescued.values()),
        columns_added=len(parsed.new_columns),
        bytes_read=fetched.bytes,
        skipped=fetched.skipped,
    )
