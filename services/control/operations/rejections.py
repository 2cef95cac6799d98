"""The rejected records of a pipeline that lands a topic, for an operator who wants to see them or send them again.

Sending one again is not harmless as sending a work item is: the topic gets another record, and an append-only table
another row. So each is claimed in the registry before it is sent, and what was sent once is left out from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog
from confluent_kafka import KafkaError, Message

from services.control.model.lifecycle import Refused
from services.control.operations.rejected_records import PartReading, RejectedRecord, newest, record_of
from services.control.operations.replay_pacing import ReplayTurn, paced
from services.control.operations.work_items import ReplayCall, Sent, in_turn, narrowed
from services.control.store.audit_log import AuditLog
from services.control.store.redriven import Mark, Redriven
from shared.config.model import Config, TopicSource
from shared.contracts.errors import ConfigError, DependencyError, SourceError
from shared.kafka.exact_producer import Report
from shared.kafka.failure import describe
from shared.kafka.rejected import WireHeaders, redriven_headers
from shared.kafka.scan import Spans, overlap
from shared.kafka.topic_records import Bounds
from shared.kafka.topics import Topics

log = structlog.get_logger(__name__)

SHOWN, WHOLE_SHOWN = 1_000, 1_000_000
"""Bytes of a key or value in a list, and where a record is asked for by its place."""

SENT_BYTES = 32_000_000
"""Read for one call that sends, at most: all of it is in memory."""

DEED = "rejected redriven"

NOT_ARRIVED = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE}
    | {KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.UNKNOWN_TOPIC_OR_PART}
    | {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._QUEUE_FULL}
)
"""After any other error the record may be there."""

DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class Producing(Protocol):
    """The part of ``shared.kafka.exact_producer.ExactProducer`` that is used here."""

    def send(
        self, key: bytes | None, value: bytes | None, headers: WireHeaders, report: Report, partition: int
    ) -> bool: ...
    def flush(self) -> int: ...
    def purge(self) -> None: ...


class Destined(NamedTuple):
    """The source's topic, which records are sent to: how many partitions it has, and a producer for it."""

    partitions: int
    producer: Producing


Reach = Callable[[Config], Destined]
"""Raises ``ConfigError`` where a variable is missing, ``ViaduckError`` where the topic can't be reached."""


class Rejections:
    """One pipeline's. Raises ``DependencyError`` while broker or registry do not answer."""

    def __init__(
        self,
        config: Callable[[], Config],
        reading: PartReading,
        reach: Reach,
        marks: Redriven,
        audit_log: AuditLog,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config
        self._reading = reading
        self._reach = reach
        self._marks = marks
        self._trail = audit_log
        self._now = now
        self._turn = ReplayTurn()

    def page(
        self, limit: int, rest: Spans | None, partition: int | None, offset: int | None
    ) -> tuple[list[tuple[RejectedRecord, Mark | None]], Spans | None]:
        """About the newest ``limit``, the newest first, and where the rest of them lies.

        Raises ``Refused`` where the source is a lake, or the topic does not exist.
        """
        name, there = self._there()
        spans = _meant(there, rest, partition, offset)
        shown = SHOWN if partition is None or offset is None else WHOLE_SHOWN
        found, left = newest(self._reading, name, spans, limit, shown) if spans else ([], None)
        marks = self._marks.of(each.place for each in found)
        return [(each, marks.get(each.place)) for each in found], left

    def redrive(self, partition: int | None, offset: int | None, author: str, call: ReplayCall, *, again: bool) -> Sent:
        """Send records to the partitions where they stood, byte for byte. Leaves out what was sent before.

        Raises ``Refused``: for a record named by partition and offset that was sent before, unless ``again``; while
        others are being sent; where the topic is gone or takes nothing from control.
        """
        return in_turn(self._turn, partial(self._redrive, partition, offset, author, call.rest, again=again), call)

    def _redrive(
        self,
        partition: int | None,
        offset: int | None,
        author: str,
        rest: Spans | None,
        most: int,
        rate: int | None,
        *,
        again: bool,
    ) -> Sent:
        """``rate`` None: only count."""
        config, named = self._config(), partition is not None and offset is not None
        name, there = self._there()
        if rate is not None:
            self._marks.forget({number: first for number, (first, _) in there.items()})
        spans = _meant(there, rest, partition, offset)
        found, left = self._found(name, spans, most, keeps=rate is not None)
        marks = {} if again else self._marks.of(each.place for each in found)
        if named and any(each.place in marks for each in found):
            raise self._sent_before(next(iter(marks.values())))
        fresh = [each for each in found if each.place not in marks]
        good = [each for each in fresh if each.origin is not None and each.origin.topic == _topic(config).topic]
        sent = Sent(len(fresh), 0, len(fresh) - len(good), left)
        given = {name: each for name, each in (("partition", partition), ("offset", offset)) if each is not None}
        given |= {"again": True} if again else {}
        return sent if rate is None or not good else self._send(config, good, sent, author, given, rate, again=again)

    def _found(self, name: str, spans: Spans, most: int, *, keeps: bool) -> tuple[list[RejectedRecord], Spans | None]:
        """Up to ``most`` of what lies there, each once; without ``keeps`` nothing of their contents."""
        found: dict[str, RejectedRecord] = {}

        def take(messages: Sequence[Message]) -> None:
            for each in messages:
                record = record_of(each, None if keeps else 0)
                found.setdefault(record.place, record)

        left = self._reading.read(name, spans, Bounds(most, SENT_BYTES), take) if spans else {}
        return list(found.values()), left or None

    def _send(
        self,
        config: Config,
        records: Sequence[RejectedRecord],
        sent: Sent,
        author: str,
        given: dict[str, Any],
        rate: int,
        *,
        again: bool,
    ) -> Sent:
        try:
            destined = self._reach(config)
        except ConfigError as error:
            said = f"control can't reach the topic {_topic(config).topic}: {error}"
            raise Refused("source_refuses", said, "Set the variables of source.properties for control, too.") from None
        except SourceError as error:
            if error.type == "source_gone":
                raise Refused("not_found", error.message, "Records can only be sent to a topic that exists.") from None
            raise
        told = {"which": given, "matched": sent.matched, "refused": sent.refused, "more": sent.rest is not None}
        claims = [each.claim for each in records]
        mine = self._marks.claim(claims, author, self._now(), DEED, told, again=again)
        done = _produced(destined, [each for each in records if each.place in mine], author, rate)
        self._settle(author, mine, done)
        denied = next((error for error in done.errors.values() if error is not None and error.code() in DENIED), None)
        if denied is not None and not done.confirmed:
            said = f"the broker does not let control write to the topic {_topic(config).topic}: {describe(denied)}"
            raise Refused("source_refuses", said, "Grant Write on the topic to control's principal; nothing was sent.")
        return replace(sent, sent=len(done.confirmed))

    def _settle(self, author: str, claimed: Iterable[str], done: _Done) -> None:
        """The caller gets the answer anyway: what is not settled counts as sent, and as not confirmed."""
        of = len(set(claimed))
        try:
            self._marks.conclude(done.confirmed, done.failed)
            if len(done.confirmed) < of:
                self._trail.note(f"{DEED} in part", author, self._now(), {"sent": len(done.confirmed), "of": of})
        except DependencyError as error:
            log.warning("redrive_not_settled", sent=len(done.confirmed), of=of, reason=error.message)

    def _there(self) -> tuple[str, Spans]:
        """The topic's name, and where lies what it holds. Raises ``Refused``."""
        config = self._config()
        _topic(config)
        name = Topics(config.kafka.topic_prefix).rejected(config.pipeline)
        spans = self._reading.spans(name)
        if spans is None:
            hint = "An applier creates it when it first works on the pipeline, if it may create topics."
            raise Refused("not_found", f"the topic {name} does not exist", hint)
        return name, spans

    def _sent_before(self, mark: Mark) -> Refused:
        said = f"{mark.author or 'someone'} sent this record again at {mark.at.isoformat(timespec='seconds')}"
        sure = "" if mark.confirmed else "; the broker did not confirm it, so look into the topic first"
        return Refused("redriven_before", said + sure, "Send it once more with `again`: the topic then holds it twice.")


class _Done(NamedTuple):
    """What became of each record, by its place: None where the broker confirmed it."""

    errors: Mapping[str, KafkaError | None]

    @property
    def confirmed(self) -> list[str]:
        return [place for place, error in self.errors.items() if error is None]

    @property
    def failed(self) -> list[str]:
        """Those that did not arrive for certain."""
        return [place for place, error in self.errors.items() if error is not None and error.code() in NOT_ARRIVED]


def _produced(destined: Destined, records: Sequence[RejectedRecord], author: str, rate: int) -> _Done:
    """Ends early once the broker denies a record."""
    errors: dict[str, KafkaError | None] = {each.place: KafkaError(KafkaError._UNKNOWN_PARTITION) for each in records}
    denied: list[str] = []

    def report(place: str, error: KafkaError | None) -> None:
        errors[place] = error
        if error is not None and error.code() in DENIED:
            denied.append(place)

    for each in paced(records, rate):
        origin = each.origin
        if denied:
            break
        if origin is None or origin.partition >= destined.partitions:
            continue
        errors[each.place] = KafkaError(KafkaError._MSG_TIMED_OUT)
        key, value = (None if it is None else it.beginning for it in (each.key, each.value))
        headers = [*each.headers, *redriven_headers(origin, author)]
        destined.producer.send(key, value, headers, partial(report, each.place), origin.partition)
    if destined.producer.flush():
        destined.producer.purge()
    return _Done(errors)


def _meant(there: Spans, rest: Spans | None, partition: int | None, offset: int | None) -> Spans:
    """The part of what is there that is asked for."""
    if rest is not None:
        there = {number: overlap(rest[number], there[number]) for number in rest if number in there}
    meant = narrowed(there, partition, offset, offset)
    return {number: (first, end) for number, (first, end) in meant.items() if first < end}


def _topic(config: Config) -> TopicSource:
    if config.topic is None:
        said = f"the source of {config.pipeline} is a lake, and only records of topics are rejected"
        raise Refused("source_is_lake", said, "Messages that could not be read are in the dead letters.")
    return config.topic
