"""Whether a destination holds a topic's records up to its position, each once, but those that were rejected.

Records are told apart by partition and offset. Their values are not read again: what a record becomes depends on the
columns that were there when it came. With keys, the newest record of each key must be there if it is the destination's
and does not delete its row, and no other one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
from confluent_kafka import Message

from services.cli.runtime.lock import broker_address
from services.cli.verify.comparison import DESTINATION, ComparisonResult, Subject, Verdict
from services.cli.verify.differences import Differences, Multisets
from shared.config.model import Config
from shared.config.topic_rules import column_that_routes
from shared.contracts.errors import ConfigError, DependencyError, DestinationError, SourceError, ViaduckError
from shared.contracts.positions import Vector, is_spelling_of
from shared.kafka.rejected import told_apart
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.source_look import look
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicIdentity, TopicLog
from shared.kafka.topic_part import TopicPart
from shared.kafka.topic_records import Bounds, TopicRecords
from shared.kafka.topics import Topics
from shared.lake.catalog.reader import CatalogReader, Column
from shared.lake.checks.foreign_files import require_no_code, require_own_files
from shared.lake.connection.attach import attach, confine, scanners
from shared.lake.connection.engine import instance, read_whole
from shared.lake.cursor import SCHEMA, Position, cursor_name, read_position
from shared.lake.failure import LakeAbsent, classify
from shared.lake.sql import ident, path
from shared.lake.stamp import StampRead, read_stamp
from shared.lake.table import is_table

CLIENT_ID = "viaduck-verify"

SILENCE_S = 30.0
EVERYTHING = Bounds(2**62, 2**62)

PLACE = (Column("_kafka_partition", "INTEGER"), Column("_kafka_offset", "BIGINT"))
PLACES, REJECTED = path("memory", "main", "places"), path("memory", "main", "rejected")
KEYS, UNCERTAIN = "keys", "uncertain"
"""Where rows have keys: every record with its key and routing value; and the places of which either may be in the
table, or another record of the key."""

SEVERAL = "some keys are in several partitions, where offsets don't tell the newest record: any of them counted"
UNASKED = "no record counts as rejected, since the embedded broker does not run"
BY_COUNT = "rows were counted: without the metadata partition and offset, records can't be told apart"


@dataclass(frozen=True)
class TopicProof:
    """One topic's. Raises ``ViaduckError`` where the broker can't be asked."""

    config: Config
    log: TopicLog
    settings: KafkaSettings
    own: KafkaSettings | None
    """Of the broker with the rejected records; None where it does not run."""

    def verdict(self, subject: Subject) -> Verdict:
        began = time.perf_counter()
        try:
            found = self._compared(subject)
        except LakeAbsent as error:
            found = Verdict(subject.destination, ComparisonResult.NOT_SEEDED, problem=error.problem())
        except ViaduckError as error:
            kind = (
                ComparisonResult.DIFFERENT
                if error.type in ("source_recreated", "table_mismatch")
                else ComparisonResult.FAILED
            )
            found = Verdict(subject.destination, kind, problem=error.problem())
        except duckdb.Error as error:
            known = classify(error, f"comparing {subject.destination} with its topic")
            found = Verdict(subject.destination, ComparisonResult.FAILED, problem=known.problem())
        return replace(found, seconds=round(time.perf_counter() - began, 3))

    def _compared(self, subject: Subject) -> Verdict:
        limit = self.config.applier.memory_limit
        with instance(memory_limit=limit, catalogs=scanners(subject.lake)) as con:
            read_whole(con)
            attach(con, DESTINATION, subject.lake, read_only=True)
            confine(con, DESTINATION)
            with closing(CatalogReader.attached(subject.lake, con, DESTINATION)) as catalog:
                require_own_files(catalog, subject.lake)
                cursor = cursor_name(subject.pipeline, subject.destination)
                require_no_code(catalog, subject.lake, ((SCHEMA, cursor), (subject.schema, subject.table)))
                texts = catalog.stamps('"seed"')
            con.execute("BEGIN")
            try:
                return self._judged(con, subject, texts)
            finally:
                con.execute("ROLLBACK")

    def _judged(self, con: duckdb.DuckDBPyConnection, subject: Subject, stamps: Iterable[str | None]) -> Verdict:
        cursor = read_position(con, DESTINATION, subject.pipeline, subject.destination)
        if cursor is None:
            return Verdict(subject.destination, ComparisonResult.NOT_SEEDED)
        identity = self.log.identity()
        _require_same(cursor, identity, subject)
        end = _vector_of(con, subject, cursor)
        oldest, start = self.log.oldest(identity.partitions), _start_of(stamps, subject, cursor.generation)
        begin = start.joined(oldest)
        self._load(con, begin, end, subject.routing_value)
        differences, note = self._differences(con, subject, begin, is_whole=begin == start)
        self._require_certain(differences)
        table = path(DESTINATION, subject.schema, subject.table)
        rows = int(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
        gone = "records that retention took since were not compared" if begin != start else ""
        unasked = UNASKED if self.own is None else ""
        return Verdict(
            subject.destination, ComparisonResult.DIFFERENT if differences.total else ComparisonResult.EQUAL,
            cursor.position, cursor.position, rows, differences, "; ".join(filter(None, (note, gone, unasked))),
        )  # fmt: skip

    def _load(self, con: duckdb.DuckDBPyConnection, begin: Vector, end: Vector, value: str) -> None:
        """Where the destination's records are, and which were rejected, as tables in memory."""
        for table in (PLACES, REJECTED):
            con.execute(f"CREATE TEMP TABLE {_temporary(table)} ({_declared()})")
        con.execute(f"CREATE TEMP TABLE {ident(KEYS)} (p INTEGER, o BIGINT, k VARCHAR, v VARCHAR)")
        con.execute(f"CREATE TEMP TABLE {ident(UNCERTAIN)} (p INTEGER, o BIGINT)")
        with (
            self._taking(con, value) as take,
            closing(TopicRecords(self.settings, self.log.topic, CLIENT_ID)) as records,
        ):
            reached = records.read(begin, end, EVERYTHING, SILENCE_S, take)
        if not reached.vector.covers(end):
            said = f"the topic {self.log.topic} ends before {end.text}, where the destination is"
            raise SourceError("source_moved", said, "the topic lost records: reseed the destination")
        _insert(con, REJECTED, self._rejected())
        if self._is_keyed:
            newest = _newest(con, value if self._is_routed else "")
            _insert(con, PLACES, [(partition, offset) for partition, offset, _ in newest])
            _fill(con, UNCERTAIN, [(partition, offset) for partition, offset, is_alone in newest if not is_alone])

    @property
    def _is_routed(self) -> bool:
        return column_that_routes(self.config.routing.field) is not None

    @property
    def _is_keyed(self) -> bool:
        return bool(self.config.routing.key_columns)

    @contextmanager
    def _taking(self, con: duckdb.DuckDBPyConnection, value: str) -> Iterator[Callable[[Sequence[Message]], None]]:
        """What keeps the places of the destination's records: of all, where nothing routes them. Where rows have
        keys it is known once all records are there which of them are the newest: all are kept for that."""
        if self.config.topic is None or not (self._is_routed or self._is_keyed):
            yield lambda batch: _insert(con, PLACES, _at(batch))
            return
        from services.applier.worker.topic_routes import open_routes

        with open_routes(self.config, self.config.topic) as routes:
            if self._is_keyed:
                yield lambda batch: _append(con, KEYS, routes.keyed(batch))
            else:
                yield lambda batch: _insert(con, PLACES, routes.places(batch, value))

    def _require_certain(self, differences: Differences) -> None:
        """Raises ``SourceError`` where records that were rejected, and forgotten by the embedded broker, may be all the
        difference."""
        is_certain = self.own is not None and not self.own.embedded
        has_others = differences.extra > 0 and not self._is_keyed
        if is_certain or has_others or not differences.total:
            return
        raise SourceError(
            "source_unreachable",
            f"{differences.missing} records have no row and {differences.extra} rows no record, which may be because"
            " records were rejected: the embedded broker forgets those when it ends",
            "verify while `viaduck up` runs, see how many records the stamps count as rejected, and let"
            " kafka.bootstrap_servers name a broker that keeps them",
        )

    def _rejected(self) -> list[tuple[int, int]]:
        found = list[tuple[int, int]]()
        if self.own is None:
            return found
        name, part = Topics(self.own.prefix).rejected(self.config.pipeline), TopicPart(self.own, CLIENT_ID)
        try:
            spans = part.spans(name)
            part.read(name, spans or {}, EVERYTHING, lambda batch: found.extend(self._named(batch)))
        except DependencyError as error:
            said = f"the topic {name} of {self.own.bootstrap} can't be read: {error.message}"
            raise SourceError("source_unreachable", said, error.hint) from None
        return found

    def _named(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """The places that the headers of rejected records name; a record may have been sent twice."""
        for message in messages:
            _, origin = told_apart(message.headers())
            if origin is not None and origin.topic == self.log.topic:
                yield origin.partition, origin.offset

    def _differences(
        self, con: duckdb.DuckDBPyConnection, subject: Subject, begin: Vector, *, is_whole: bool
    ) -> tuple[Differences, str]:
        """``is_whole``: the topic retains all records of the life."""
        table = path(DESTINATION, subject.schema, subject.table)
        if not is_table(con, DESTINATION, subject.schema, subject.table):
            hint = "the table was dropped: reseed the destination"
            raise DestinationError("table_mismatch", f"the destination has no table {subject.table}", hint)
        landed = f"SELECT * FROM {_temporary(PLACES)} EXCEPT ALL SELECT DISTINCT * FROM {_temporary(REJECTED)}"
        uncertain = f"SELECT * FROM {_temporary(path(UNCERTAIN))}"
        required, several = landed, ""
        if con.execute(f"SELECT count(*) FROM ({uncertain})").fetchall() != [(0,)]:
            required, several = f"SELECT * FROM ({landed}) EXCEPT ALL {uncertain}", SEVERAL
        names = ", ".join(ident(column.name) for column in PLACE)
        have = {name for (name,) in con.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()}
        if not {column.name for column in PLACE} <= have:
            differences = _counted(con, table, required, landed if is_whole else None)
            return differences, "; ".join(filter(None, (BY_COUNT, several)))
        con.execute(f"CREATE TEMP TABLE {ident('begins')} (p INTEGER, o BIGINT)")
        _fill(con, "begins", begin.offsets)
        found = (
            f"SELECT {names} FROM {table} LEFT JOIN {_temporary(path('begins'))} ON p = {ident(PLACE[0].name)}"
            f" WHERE {ident(PLACE[1].name)} >= coalesce(o, 0)"
        )
        return Multisets(con, PLACE, (), found, required, landed).differences(), several


def proofs(config: Config, subjects: Sequence[Subject]) -> list[Verdict]:
    """A verdict for each. Raises ``ConfigError`` where past snapshots are asked for, and ``SourceError``."""
    if any(subject.past is not None for subject in subjects):
        raise ConfigError(["--all-snapshots: is for pipelines whose source is a lake"])
    if config.topic is None:
        raise ConfigError(["source: is a lake"])
    settings = topic_settings(config)
    log = TopicLog(settings, config.topic.topic, CLIENT_ID)
    log.identity()
    values = look(config).routing_values
    proof = TopicProof(config, log, settings, _own_broker(config))
    return [
        proof.verdict(replace(each, routing_value=values.get(each.destination, each.routing_value)))
        for each in subjects
    ]


def _own_broker(config: Config) -> KafkaSettings | None:
    """The deployment's; where that is the embedded one, of the ``viaduck up`` that runs, and None where none does."""
    if config.kafka.bootstrap_servers is not None or BOOTSTRAP in os.environ:
        return KafkaSettings.reaching(config)
    address = broker_address(config.state_dir)
    return None if address is None else KafkaSettings.reaching(config, {**os.environ, BOOTSTRAP: address})


def _temporary(table: str) -> str:
    return path("temp", "main", table.rpartition(".")[2].strip('"'))


def _declared() -> str:
    return ", ".join(f"{ident(column.name)} {column.type}" for column in PLACE)


def _at(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(message.partition() or 0, message.offset() or 0) for message in messages]


def _insert(con: duckdb.DuckDBPyConnection, table: str, places: Sequence[tuple[int, int]]) -> None:
    _fill(con, table.rpartition(".")[2].strip('"'), places)


def _fill(con: duckdb.DuckDBPyConnection, table: str, places: Sequence[tuple[int, int]]) -> None:
    _append(con, table, pa.table({"p": [each for each, _ in places], "o": [offset for _, offset in places]}))


def _append(con: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    con.register("viaduck_places", rows)
    try:
        con.execute(f"INSERT INTO {path('temp', 'main', table)} SELECT * FROM {path('viaduck_places')}")
    finally:
        con.unregister("viaduck_places")


def _newest(con: duckdb.DuckDBPyConnection, value: str) -> list[tuple[int, int, bool]]:
    """Partition and offset of the newest records of all keys, rejected ones aside, that are routed to ``value``, and
    whether that is certain: of a key that has records in several partitions the newest of each is here."""
    same = f"r.{ident(PLACE[0].name)} = p AND r.{ident(PLACE[1].name)} = o"
    rejected = f"SELECT 1 FROM {_temporary(REJECTED)} AS r WHERE {same}"
    good = f"SELECT * FROM {path('temp', 'main', KEYS)} WHERE NOT EXISTS ({rejected})"
    newest = f"{good} QUALIFY row_number() OVER (PARTITION BY k, p ORDER BY o DESC) = 1"
    told = f"SELECT p, o, v, count(*) OVER (PARTITION BY k) = 1 AS is_alone FROM ({newest})"
    return con.execute(f"SELECT p, o, is_alone FROM ({told}) WHERE v = $value", {"value": value}).fetchall()


def _counted(con: duckdb.DuckDBPyConnection, table: str, required: str, allowed: str | None) -> Differences:
    """``allowed`` is None where the table has rows of earlier records, too."""
    counts = ", ".join(f"(SELECT count(*) FROM ({each}))" for each in (f"FROM {table}", required, allowed or required))
    rows, least, most = con.execute(f"SELECT {counts}").fetchall()[0]
    return Differences(missing=max(0, least - rows), extra=0 if allowed is None else max(0, rows - most))


def _require_same(cursor: Position, identity: TopicIdentity, subject: Subject) -> None:
    if cursor.table_uuid != identity.topic_id:
        raise DestinationError(
            "source_recreated",
            f"{subject.destination} holds records of the topic with the id {cursor.table_uuid}, and it is"
            f" {identity.topic_id} now",
            "the topic was deleted and created again: reseed the destination",
        )


def _vector_of(con: duckdb.DuckDBPyConnection, subject: Subject, cursor: Position) -> Vector:
    table = path(DESTINATION, SCHEMA, cursor_name(subject.pipeline, subject.destination))
    (spelled,) = con.execute(f"SELECT source_position FROM {table}").fetchall()[0]
    if not isinstance(spelled, str) or not is_spelling_of(spelled, cursor.position):
        hint = "another program wrote to the schema _viaduck; reseed the destination"
        raise DestinationError("cursor_damaged", "the cursor's position is not spelled by its offsets", hint)
    return Vector.parse(spelled)


def _start_of(stamps: Iterable[str | None], subject: Subject, generation: int) -> Vector:
    """Where the rows of the life began, by its seed's stamp; at the first record where that is gone.

    A rewind leaves the rows before it, which begin where those of the life before it did. Where that is not known any
    more, only what came since is compared.
    """
    seeds = {said.generation: said for said in map(read_stamp, stamps) if said is not None and _is_seed(said, subject)}
    said = seeds.get(generation)
    if said is None:
        return Vector()
    begin = Vector.parse(said.through_at or "{}")
    while said is not None and said.rewound:
        said = seeds.get(max((each for each in seeds if each < said.generation), default=0))
        begin = begin if said is None else begin.met(Vector.parse(said.through_at or "{}"))
    return begin


def _is_seed(said: StampRead, subject: Subject) -> bool:
    is_spelled = said.through_at is not None and is_spelling_of(said.through_at, said.through)
    return said.kind == "seed" and is_spelled and said.speaks_of(subject.pipeline, subject.destination)
