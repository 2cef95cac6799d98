"""Work items and dead letters: what is shown, and what is sent again."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.board import Board
from services.control.work import REPLAYED_BY, Work
from shared.kafka.dead_letter import MAX_PAYLOAD
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.messages import DeadLetter, ItemKind, WorkItem
from tests.fast.control.examples import PIPELINE, START
from tests.fast.control.office import V1, Office

TOPICS = Topics()


@dataclass
class FakeBroker:
    """Topics with one partition, in memory."""

    topics: dict[str, list[Record]] = field(default_factory=dict)
    refuses: bool = False

    def newest(self, topic: str, count: int) -> list[Record]:
        return self.topics.get(topic, [])[-count:]

    def all(self, topic: str, since_ms: int | None = None) -> Iterator[Record]:
        return iter(list(self.topics.get(topic, [])))

    def send(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        headers: Mapping[str, str] | None = None,
        on_delivery: Callable[[Exception | None], None] | None = None,
    ) -> None:
        lying = self.topics.setdefault(topic, [])
        if not self.refuses:
            lying.append(Record(topic, 0, len(lying), key, value, headers or {}))
        if on_delivery is not None:
            on_delivery(OSError() if self.refuses else None)

    def flush(self, timeout_s: float) -> int:
        return 0

    def put(self, message: WorkItem | DeadLetter, headers: Mapping[str, str] | None = None) -> None:
        topic = TOPICS.work if isinstance(message, WorkItem) else TOPICS.dead_letter
        self.send(topic, message.key or "", message.to_bytes(), headers)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def office(tmp_path: Path, broker: FakeBroker) -> Iterator[Office]:
    def work(board: Board) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, board.view)

    with closing(Office(tmp_path, work=work)) as office:
        office.add("a")
        office.add("b")
        yield office


def item(name: str, id: str = "a", **fields: Any) -> WorkItem:
    plain = {"generation": 1, "kind": ItemKind.CHANGES, "expected": 1, "after": 1, "through": 5, "published_at": START}
    return WorkItem(item=name, pipeline=PIPELINE, destination=id, **{**plain, **fields})


def letter(payload: bytes = b"garbage", topic: str = TOPICS.work, key: str = "events/a") -> DeadLetter:
    encoded = base64.b64encode(payload).decode()
    return DeadLetter(topic=topic, partition=0, offset=7, key=key, reason="not JSON", payload=encoded, by="applier")


def states(office: Office, query: str = "") -> dict[str, str]:
    return {each["item"]: each["state"] for each in office.http.get(f"{V1}/work{query}").json()["items"]}


def test_items_are_shown_with_what_became_of_them(office: Office, broker: FakeBroker) -> None:
    broker.put(item("old life", through=9, generation=1, published_at=START - timedelta(hours=1)))
    office.http.post(f"{V1}/destinations/a/reseed")
    broker.put(item("done", generation=2))
    broker.put(item("given up", generation=2, through=8, published_at=START + timedelta(seconds=1)))
    broker.put(item("newest", generation=2, through=9, published_at=START + timedelta(seconds=2)))
    broker.put(item("of b", "b"))
    office.applied("a", 2, 6)
    assert states(office) == {
        "old life": "superseded", "done": "done", "given up": "superseded", "newest": "waiting", "of b": "waiting"
    }  # fmt: skip
    assert list(states(office, "?destination=b")) == ["of b"]
    assert list(states(office, "?state=done")) == ["done"]


def test_what_nobody_can_read_and_what_is_of_another_pipeline_is_left_out(office: Office, broker: FakeBroker) -> None:
    broker.send(TOPICS.work, "events/a", b"garbage")
    broker.put(item("x").model_copy(update={"pipeline": "another"}))
    assert states(office) == {}


WHICH: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["one", "two", "three"]),
    ({"destination": "b"}, ["three"]),
    ({"kind": "seed"}, ["two"]),
    ({"from_offset": 1}, ["two", "three"]),
    ({"to_offset": 0}, ["one"]),
    ({"partition": 1}, []),
    ({"since": "2026-01-01T00:00:05Z"}, ["two", "three"]),
    ({"until": "2026-01-01T00:00:05Z"}, ["one"]),
    ({"after": 5, "through": 7}, ["two"]),
    ({"after": 4, "through": 5}, ["one", "two"]),
]


@pytest.mark.parametrize(("which", "names"), WHICH)
def test_what_matches_is_sent_again_as_it_was(
    office: Office, broker: FakeBroker, which: dict[str, Any], names: list[str]
) -> None:
    broker.put(item("one"), {"traceparent": "t"})
    broker.put(item("two", kind=ItemKind.SEED, after=-1, through=9, published_at=START + timedelta(seconds=9)))
    broker.put(item("three", "b", after=20, through=30, published_at=START + timedelta(seconds=9)))
    before = list(broker.topics[TOPICS.work])
    dry = office.http.post(f"{V1}/work:replay", {**which, "dry_run": True}).json()
    assert (dry["matched"], dry["sent"], broker.topics[TOPICS.work]) == (len(names), 0, before)

    said = office.http.post(f"{V1}/work:replay", which).json()
    again = broker.topics[TOPICS.work][3:]
    assert (said["matched"], said["sent"], said["more"]) == (len(names), len(names), False)
    assert [WorkItem.from_bytes(each.value or b"").item for each in again] == names
    for sent in again:
        first = next(each for each in before if each.value == sent.value)
        assert (sent.key, sent.headers) == (first.key, {**first.headers, REPLAYED_BY: "loopback"})


def test_what_the_broker_did_not_take_is_not_counted(office: Office, broker: FakeBroker) -> None:
    broker.put(item("one"))
    broker.refuses = True
    assert office.http.post(f"{V1}/work:replay", {}).json()["sent"] == 0


def test_letters_are_shown_without_secrets(office: Office, broker: FakeBroker) -> None:
    broker.put(letter(b'{"catalog": "postgresql://u:s3cret@h/d"}'))
    broker.put(letter(key="another/a"))
    broker.put(letter(key="who knows"))
    answer = office.http.get(f"{V1}/dead-letters")
    assert sorted(each["key"] for each in answer.json()["items"]) == ["events/a", "who knows"]
    assert "s3cret" not in answer.text


def test_letters_go_back_to_where_they_came_from_unless_they_were_cut_or_are_controls_own(
    office: Office, broker: FakeBroker
) -> None:
    broker.put(letter(b"one"))
    broker.put(letter(b"two", TOPICS.progress))
    broker.put(letter(b"three", TOPICS.destinations))
    broker.put(letter(b"four", "somebody.elses"))
    broker.put(letter(b"x" * MAX_PAYLOAD))
    said = office.http.post(f"{V1}/dead-letters:redrive", {}).json()
    assert (said["matched"], said["sent"], said["refused"]) == (5, 2, 3)
    assert [each.value for each in broker.topics[TOPICS.work]] == [b"one"]
    assert [each.value for each in broker.topics[TOPICS.progress]] == [b"two"]
    assert broker.topics.keys() == {TOPICS.dead_letter, TOPICS.work, TOPICS.progress}


def test_one_letter_can_be_meant(office: Office, broker: FakeBroker) -> None:
    broker.put(letter(b"one"))
    broker.put(letter(b"two"))
    office.http.post(f"{V1}/dead-letters:redrive", {"partition": 0, "offset": 1})
    assert [each.value for each in broker.topics[TOPICS.work]] == [b"two"]


def test_a_scan_reads_what_a_topic_holds_now_and_ends() -> None:
    """On a broker: all of it, the newest of it, and nothing where there is nothing."""
    broker = EmbeddedBroker()
    settings = KafkaSettings(broker.bootstrap, embedded=True)
    ensure(settings)
    scan = Scan(settings, "test")
    assert list(scan.all(TOPICS.work)) == []
    publisher = Publisher(settings, "test")
    for number in range(200):
        publisher.send(TOPICS.work, f"key {number}", str(number).encode())
    assert publisher.flush(10) == 0
    publisher.close()
    assert sorted(int(record.value or b"") for record in scan.all(TOPICS.work)) == list(range(200))
    newest = scan.newest(TOPICS.work, 8)
    assert 0 < len(newest) < 200
    assert all(record.offset > 0 for record in newest)
