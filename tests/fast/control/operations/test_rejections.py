"""Rejected records: what is shown of them, and that each is sent to its topic once, byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from sqlalchemy import text

from services.control.operations import rejections as module
from services.control.operations.rejected_records import shares
from services.control.operations.rejections import Destined, Rejections
from services.control.store.audit_log import WHOLE
from services.control.store.redriven import Redriven
from shared.config.model import Config
from shared.contracts.errors import ConfigError, SourceError
from shared.kafka.exact_producer import Report
from shared.kafka.rejected import RejectedOrigin, WireHeaders, reason_headers
from shared.kafka.scan import Spans
from shared.kafka.topic_records import Bounds, Take
from tests.fast.control.examples import PIPELINE
from tests.fast.control.files import config
from tests.fast.control.rig import V1, ControlRig

REJECTED = f"viaduck.rejected.{PIPELINE}"


@dataclass(frozen=True)
class Message:
    at: tuple[int, int]
    content: tuple[bytes | None, bytes | None]
    own: WireHeaders
    ms: int

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def key(self) -> bytes | None:
        return self.content[0]

    def value(self) -> bytes | None:
        return self.content[1]

    def headers(self) -> WireHeaders:
        return self.own

    def timestamp(self) -> tuple[int, int]:
        return 1, self.ms


@dataclass
class Broker:
    """The topic of rejected records, and the source's, as far as what is sent there."""

    there: bool = True
    kept: dict[int, list[Message]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    sent: list[tuple[int, bytes | None, bytes | None, list[Any]]] = field(default_factory=list)
    refuses: KafkaError | None = None
    silent: bool = False
    fails: Exception | None = None

    def put(
        self, value: bytes | None, offset: int = 0, partition: int = 0, key: bytes | None = None,
        own: Sequence[tuple[str, str | bytes | None]] = (), topic: str = "clicks", ms: int | None = None, at: int = 0,
    ) -> None:  # fmt: skip
        kept = self.kept.setdefault(at, [])
        number = sum(map(len, self.kept.values())) if ms is None else ms
        origin = RejectedOrigin(
            "not_json", "the value is not JSON", topic, partition, offset, "2026-11-26T05:00:00+00:00"
        )
        kept.append(Message((at, len(kept)), (key, value), [*own, *reason_headers(origin)], number))

    def spans(self, topic: str) -> Spans | None:
        assert topic == REJECTED
        found = {each: (self.first.get(each, 0), len(kept)) for each, kept in self.kept.items()}
        return {each: span for each, span in found.items() if span[0] < span[1]} if self.there else None

    def read(self, topic: str, spans: Spans, bounds: Bounds, take: Take) -> Spans:
        left, rows, size = dict(spans), 0, 0
        for partition, (first, end) in spans.items():
            for message in self.kept[partition][first:end]:
                if rows >= bounds.rows or size >= bounds.bytes:
                    break
                take([message])  # type: ignore[list-item]
                rows, size = rows + 1, size + len(message.value() or b"")
                left[partition] = message.offset() + 1, end
        return {each: span for each, span in left.items() if span[0] < span[1]}

    def reach(self, _: Config) -> Destined:
        if self.fails is not None:
            raise self.fails
        return Destined(2, self)

    def send(
        self, key: bytes | None, value: bytes | None, headers: WireHeaders, report: Report, partition: int
    ) -> bool:
        if self.silent:
            return True
        if self.refuses is None:
            self.sent.append((partition, key, value, headers))
        report(self.refuses)
        return True

    def flush(self) -> int:
        return int(self.silent)

    def purge(self) -> None:
        pass


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def rig(tmp_path: Path, broker: Broker) -> Iterator[ControlRig]:
    folder = tmp_path / "topic"
    folder.mkdir()
    landed = config(folder, source={"kind": "kafka", "topic": "clicks"}, routing={},
                    kafka={"bootstrap_servers": "kafka:9092"})  # fmt: skip
    with closing(ControlRig(tmp_path)) as rig:
        marks = Redriven(rig.registry.database, PIPELINE)
        rig.handle.rejections = Rejections(lambda: landed, broker, broker.reach, marks, rig.service.audit_log)
        yield rig


def shown(rig: ControlRig, query: str = "") -> Any:
    answer = rig.http.get(f"{V1}/rejected{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def redrive(rig: ControlRig, status: int = 200, **which: Any) -> Any:
    answer = rig.http.post(f"{V1}/rejected:redrive", which)
    assert answer.status_code == status, answer.text
    return answer.json()


def counts(said: Any) -> tuple[int, int, int]:
    return said["matched"], said["sent"], said["refused"]


def kind(said: Any) -> str:
    return str(said["type"]).rpartition("#")[2]


def trail(rig: ControlRig) -> list[tuple[str, Any]]:
    found = rig.service.audit_log.entries(10, destination=WHOLE)
    return [(each.deed, {name: now for name, (_, now) in each.changes.items()}) for each in found]


def test_a_record_is_shown_with_its_reason_its_places_and_its_bytes(rig: ControlRig, broker: Broker) -> None:
    broker.put(b'{"a": \xff\x00 <script>', 12, 1, b"k", ms=1_000)
    (one,) = shown(rig)["items"]
    assert (one["partition"], one["offset"], one["rejected_at"]) == (0, 0, "1970-01-01T00:00:01Z")
    assert (one["topic"], one["source_partition"], one["source_offset"]) == ("clicks", 1, 12)
    assert (one["reason"], one["message"], one["size"]) == ("not_json", "the value is not JSON", 18)
    assert base64.b64decode(one["value"]["base64"]) == b'{"a": \xff\x00 <script>'
    assert (one["value"]["whole"], one["value"]["text"]) == (True, '{"a": \\xff\x00 <script>')
    assert (base64.b64decode(one["key"]["base64"]), one["redriven"]) == (b"k", None)


def test_a_large_record_is_cut_in_the_list_and_shown_by_its_place(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"x" * 5_000)
    broker.put(None, 1)
    (nothing, one) = shown(rig)["items"]
    assert (one["size"], one["value"]["whole"], len(one["value"]["text"])) == (5_000, False, 500)
    assert (nothing["size"], nothing["value"]) == (0, None)
    (whole,) = shown(rig, "?partition=0&offset=0")["items"]
    assert base64.b64decode(whole["value"]["base64"]) == b"x" * 5_000


def test_pages_begin_with_the_newest_and_show_each_record_once(rig: ControlRig, broker: Broker) -> None:
    for number in range(40):
        broker.put(b"", number, ms=number, at=(0, 0, 1)[number % 3])
    broker.first[0] = 3
    found, after, pages = list[tuple[int, int]](), "", 0
    while True:
        page = shown(rig, f"?limit=7{after}")
        found += [(each["partition"], each["offset"]) for each in page["items"]]
        pages += 1
        assert len(page["items"]) <= 7
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert len(found) == len(set(found)) == 37
    assert found[0] == (0, 26)
    assert pages < 15


def test_a_page_of_records_too_large_for_one_read_is_shorter(
    rig: ControlRig, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.control.operations.rejected_records.PAGE_BYTES", 1_000)
    for number in range(20):
        broker.put(b"x" * 300, number)
    page = shown(rig, "?limit=20")
    assert [each["offset"] for each in page["items"]] == [19, 18]
    assert [each["offset"] for each in shown(rig, f"?limit=1&after={page['next']}")["items"]] == [17]


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_what_a_short_partition_leaves_is_the_others(limit: int) -> None:
    found = shares({0: (5, 7), 1: (0, 1_000), 2: (10, 1_000)}, limit)
    sizes = {number: end - first for number, (first, end) in found.items()}
    assert all(sizes.values())
    assert sum(sizes.values()) == max(3, limit)


def test_a_record_goes_back_byte_for_byte_to_its_partition(rig: ControlRig, broker: Broker) -> None:
    own: WireHeaders = [("trace", b"\xff"), ("trace", None)]
    broker.put(b"\xffbad", 12, 1, b"k\x00", own)
    broker.put(None, 13)
    assert counts(redrive(rig)) == (2, 2, 0)
    (partition, key, value, headers), (_, *nothing, _) = broker.sent
    assert (partition, key, value, headers[:2], nothing) == (1, b"k\x00", b"\xffbad", own, [None, None])
    assert dict(headers[2:]) == {
        "viaduck-redriven-by": b"loopback", "viaduck-redriven-topic": b"clicks", "viaduck-redriven-partition": b"1",
        "viaduck-redriven-offset": b"12", "viaduck-redriven-timestamp": b"2026-11-26T05:00:00+00:00",
    }  # fmt: skip
    assert trail(rig) == [("rejected redriven", {"which": {}, "matched": 2, "refused": 0, "more": False})]


def test_what_was_sent_is_left_out_and_refused_by_its_name_unless_it_is_meant_again(
    rig: ControlRig, broker: Broker
) -> None:
    for number in range(3):
        broker.put(b"%d" % number, number)
    assert counts(redrive(rig, dry_run=True)) == (3, 0, 0)
    assert counts(redrive(rig, partition=0, offset=1)) == (1, 1, 0)
    assert counts(redrive(rig)) == (2, 2, 0)
    assert [value for _, _, value, _ in broker.sent] == [b"1", b"0", b"2"]
    assert counts(redrive(rig)) == (0, 0, 0)
    said = redrive(rig, 409, partition=0, offset=1)
    assert (kind(said), "loopback sent this record again at" in said["detail"]) == ("redriven_before", True)
    assert counts(redrive(rig, partition=0, offset=1, again=True)) == (1, 1, 0)
    assert len(broker.sent) == 4
    assert all(each["redriven"]["confirmed"] for each in shown(rig)["items"])


def test_a_record_that_was_delivered_twice_is_one(rig: ControlRig, broker: Broker) -> None:
    for _ in range(2):
        broker.put(b"a", 5)
    assert counts(redrive(rig)) == (1, 1, 0)
    broker.put(b"a", 5)
    assert counts(redrive(rig)) == (0, 0, 0)
    assert [each["redriven"]["author"] for each in shown(rig)["items"]] == ["loopback"] * 3


def test_a_record_of_another_topic_or_program_is_not_sent(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"other", topic="orders")
    broker.kept[0].append(Message((0, 1), (None, b"?"), [("viaduck-reason", b"x")], 9))
    broker.put(b"beyond", 7, partition=2)
    said = redrive(rig)
    assert (counts(said), broker.sent) == ((3, 0, 2), [])
    assert counts(redrive(rig)) == (3, 0, 2)
    assert shown(rig)["items"][1]["reason"] is None


def test_a_call_sends_what_fits_and_the_next_goes_on(rig: ControlRig, broker: Broker) -> None:
    for number in range(5):
        broker.put(b"%d" % number, number)
    first = rig.http.post(f"{V1}/rejected:redrive?limit=2", {}).json()
    assert (counts(first), first["more"]) == ((2, 2, 0), True)
    assert kind(rig.http.post(f"{V1}/rejected:redrive", {}).json()) == "replay_running"
    broker.put(b"new", 9)
    said = rig.http.post(f"{V1}/rejected:redrive?after={first['next']}", {}).json()
    assert (counts(said), said["more"], len(broker.sent)) == ((3, 3, 0), False, 5)


def test_where_the_broker_denies_it_nothing_counts_as_sent(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"a")
    broker.refuses = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    said = redrive(rig, 409)
    assert (kind(said), "grant write" in said["hint"].lower()) == ("source_refuses", True)
    assert trail(rig)[0] == ("rejected redriven in part", {"sent": 0, "of": 1})
    broker.refuses = None
    assert counts(redrive(rig)) == (1, 1, 0)


def test_what_the_broker_did_not_confirm_is_not_sent_twice_by_accident(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"a")
    broker.silent = True
    assert counts(redrive(rig)) == (1, 0, 0)
    broker.silent = False
    assert counts(redrive(rig)) == (0, 0, 0)
    assert shown(rig)["items"][0]["redriven"]["confirmed"] is False
    assert "did not confirm" in redrive(rig, 409, partition=0, offset=0)["detail"]
    assert counts(redrive(rig, again=True)) == (1, 1, 0)


def test_what_can_not_be_written_down_is_not_sent(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"a")
    with rig.registry.database.transaction() as con:
        con.execute(text("DROP TABLE audit"))
    redrive(rig, 503)
    assert broker.sent == []


def test_what_the_topic_has_forgotten_is_forgotten_here(rig: ControlRig, broker: Broker) -> None:
    for number in range(2):
        broker.put(b"a", number)
    redrive(rig)
    broker.first[0] = 1
    redrive(rig)
    with rig.registry.database.transaction() as con:
        assert con.execute(text('SELECT "offset" FROM redriven')).scalars().all() == [1]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (SourceError("source_gone", "kafka:9092 has no topic clicks", ""), 404, "not_found"),
        (SourceError("source_unreachable", "no answer", ""), 503, "unavailable"),
        (ConfigError(["source.properties.x_env: the environment variable X is not set"]), 409, "source_refuses"),
    ],
)
def test_a_source_that_is_not_reached_gets_nothing(
    rig: ControlRig, broker: Broker, error: Exception, status: int, said: str
) -> None:
    broker.put(b"a")
    broker.fails = error
    assert kind(redrive(rig, status)) == said
    broker.fails = None
    assert counts(redrive(rig)) == (1, 1, 0)


def test_without_a_topic_of_rejected_records_there_is_nothing(rig: ControlRig, broker: Broker) -> None:
    broker.there = False
    for answer in (rig.http.get(f"{V1}/rejected"), rig.http.post(f"{V1}/rejected:redrive", {})):
        assert (answer.status_code, kind(answer.json())) == (404, "not_found")
        assert REJECTED in answer.json()["detail"]


def test_a_pipeline_of_a_lake_rejects_no_records(rig: ControlRig, broker: Broker) -> None:
    assert rig.handle.rejections is not None
    rig.handle.rejections = Rejections(
        lambda: rig.config, broker, broker.reach, Redriven(rig.registry.database, PIPELINE), rig.service.audit_log
    )
    for answer in (rig.http.get(f"{V1}/rejected"), rig.http.post(f"{V1}/rejected:redrive", {})):
        assert (answer.status_code, kind(answer.json())) == (409, "source_is_lake")


def test_many_places_are_looked_up_in_portions(
    rig: ControlRig, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.control.store.redriven.AT_ONCE", 2)
    for number in range(5):
        broker.put(b"a", number)
    assert counts(redrive(rig)) == (5, 5, 0)
    assert sum(each["redriven"] is not None for each in shown(rig)["items"]) == 5


def test_the_claim_of_another_control_is_respected(rig: ControlRig, broker: Broker) -> None:
    """It claims between this one's look and its own claim."""
    broker.put(b"a")
    marks = Redriven(rig.registry.database, PIPELINE)
    rejections = rig.handle.rejections
    assert rejections is not None

    def reach(_: Config) -> Destined:
        records: Sequence[Any] = [each for each, _ in rejections.page(10, None, None, None)[0]]
        marks.claim([each.claim for each in records], "other", rig.now, module.DEED, {}, again=False)
        return Destined(2, broker)

    rejections._reach = reach
    assert counts(redrive(rig)) == (1, 0, 0)
    assert broker.sent == []


def test_headers_that_another_program_wrote_are_cut(rig: ControlRig, broker: Broker) -> None:
    broker.put(b"a", topic="t" * 100_000)
    (one,) = shown(rig)["items"]
    assert (one["topic"], one["source_offset"]) == ("t" * 500, 0)
    assert counts(redrive(rig)) == (1, 0, 1)
