"""Work items and dead letters: what is shown, and what is sent again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from services.control.api.work import LONGEST_CURSOR
from services.control.model.lifecycle import Refused
from services.control.operations.replay_pacing import CONTINUES_WITHIN_S, ReplayTurn, paced
from services.control.operations.work_items import REPLAYED_BY, Spans, Work
from services.control.store.audit_log import WHOLE, AuditLog
from services.control.view.status_store import StatusStore
from services.control.web.paging import read_spans, write_spans
from shared.contracts.messages import DeadLetter, ItemKind, WorkItem
from shared.kafka.dead_letter import MAX_PAYLOAD
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests.fast.control.examples import PIPELINE, START
from tests.fast.control.rig import V1, ControlRig
from tests.fast.fake_sender import FakeSender

TOPICS = Topics()


class FakeBroker(FakeSender):
    """Topics with one partition, in memory."""

    def newest(self, topic: str, count: int) -> list[Record]:
        return self.topics.get(topic, [])[-count:]

    def spans(self, topic: str, since_ms: int | None = None) -> Spans:
        return {0: (0, len(self.topics.get(topic, [])))}

    def within(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[Record]:
        first, end = spans.get(0, (0, 0))
        return iter(self.topics.get(topic, [])[first:end])

    def put(self, message: WorkItem | DeadLetter, headers: Mapping[str, str] | None = None) -> None:
        topic = TOPICS.work if isinstance(message, WorkItem) else TOPICS.dead_letter
        self.send(topic, message.key or "", message.to_bytes(), headers)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def rig(tmp_path: Path, broker: FakeBroker) -> Iterator[ControlRig]:
    def work(status_store: StatusStore, trail: AuditLog) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, status_store.view, trail)

    with closing(ControlRig(tmp_path, work=work)) as rig:
        rig.add("a")
        rig.add("b")
        yield rig


def item(name: str, id: str = "a", **fields: Any) -> WorkItem:
    plain = {"generation": 1, "kind": ItemKind.CHANGES, "expected": 1, "after": 1, "through": 5, "published_at": START}
    return WorkItem(item=name, pipeline=PIPELINE, destination=id, **{**plain, **fields})


def letter(payload: bytes = b"garbage", topic: str = TOPICS.work, key: str = "events/a") -> DeadLetter:
    encoded = base64.b64encode(payload).decode()
    return DeadLetter(topic=topic, partition=0, offset=7, key=key, reason="not JSON", payload=encoded, by="applier")


def states(rig: ControlRig, query: str = "") -> dict[str, str]:
    return {each["item"]: each["state"] for each in rig.http.get(f"{V1}/work{query}").json()["items"]}


def test_items_are_shown_with_what_became_of_them(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(item("old life", through=9, generation=1, published_at=START - timedelta(hours=1)))
    rig.http.post(f"{V1}/destinations/a/reseed")
    broker.put(item("done", generation=2))
    broker.put(item("given up", generation=2, through=8, published_at=START + timedelta(seconds=1)))
    broker.put(item("newest", generation=2, through=9, published_at=START + timedelta(seconds=2)))
    broker.put(item("of b", "b"))
    rig.applied("a", 2, 6)
    assert states(rig) == {
        "old life": "superseded", "done": "done", "given up": "superseded", "newest": "waiting", "of b": "waiting"
    }  # fmt: skip
    assert list(states(rig, "?destination=b")) == ["of b"]
    assert list(states(rig, "?state=done")) == ["done"]


def test_what_nobody_can_read_and_what_is_of_another_pipeline_is_left_out(rig: ControlRig, broker: FakeBroker) -> None:
    broker.send(TOPICS.work, "events/a", b"garbage")
    broker.put(item("x").model_copy(update={"pipeline": "another"}))
    assert states(rig) == {}


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
    rig: ControlRig, broker: FakeBroker, which: dict[str, Any], names: list[str]
) -> None:
    broker.put(item("one"), {"traceparent": "t"})
    broker.put(item("two", kind=ItemKind.SEED, after=-1, through=9, published_at=START + timedelta(seconds=9)))
    broker.put(item("three", "b", after=20, through=30, published_at=START + timedelta(seconds=9)))
    before = list(broker.topics[TOPICS.work])
    dry = rig.http.post(f"{V1}/work:replay", {**which, "dry_run": True}).json()
    assert (dry["matched"], dry["sent"], broker.topics[TOPICS.work]) == (len(names), 0, before)

    said = rig.http.post(f"{V1}/work:replay", which).json()
    again = broker.topics[TOPICS.work][3:]
    assert (said["matched"], said["sent"], said["more"]) == (len(names), len(names), False)
    assert [WorkItem.from_bytes(each.value or b"").item for each in again] == names
    for sent in again:
        first = next(each for each in before if each.value == sent.value)
        assert (sent.key, sent.headers) == (first.key, {**first.headers, REPLAYED_BY: "loopback"})


def test_what_the_broker_did_not_take_is_not_counted_and_the_trail_says_so(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(item("one"))
    broker.refuses = True
    assert rig.http.post(f"{V1}/work:replay", {}).json()["sent"] == 0
    part, whole = trail(rig)[:2]
    assert (whole["deed"], whole["changes"]["matched"]) == ("replayed", [None, 1])
    assert (part["deed"], part["changes"]) == ("replayed in part", {"sent": [None, 0], "of": [None, 1]})


def trail(rig: ControlRig) -> list[dict[str, Any]]:
    return list(rig.http.get(f"{V1}/audit").json()["items"])


def sent_again(rig: ControlRig, path: str, body: object, limit: int) -> Iterator[Any]:
    """The answers, until there is no more."""
    following = ""
    while True:
        answer = rig.http.post(f"{V1}/{path}?limit={limit}{following}", body)
        assert answer.status_code == 200, answer.text
        yield (said := answer.json())
        assert said["more"] == (said["next"] is not None)
        if not said["more"]:
            return
        following = f"&after={said['next']}"


def names(broker: FakeBroker, topic: str = TOPICS.work) -> list[str]:
    return [WorkItem.from_bytes(each.value or b"").item for each in broker.topics[topic]]


def test_the_rest_is_sent_by_asking_on_each_item_once_and_none_of_what_came_meanwhile(
    rig: ControlRig, broker: FakeBroker
) -> None:
    for name in ("one", "of b", "two", "three", "four", "five"):
        broker.put(item(name, name[3:] if name == "of b" else "a"))
    asking = sent_again(rig, "work:replay", {"destination": "a"}, 2)
    said = [next(asking)]
    broker.put(item("meanwhile"))
    said += asking
    assert [(each["matched"], each["sent"], each["more"]) for each in said] == [
        (2, 2, True),
        (2, 2, True),
        (1, 1, False),
    ]
    assert names(broker)[6:] == ["one", "two", "meanwhile", "three", "four", "five"]


def test_what_was_sent_again_is_not_sent_again_itself(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(item("one"))
    broker.put(item("two"))
    for _ in range(3):
        assert rig.http.post(f"{V1}/work:replay", {}).json()["matched"] == 2
    assert names(broker) == ["one", "two"] * 4


def test_letters_that_came_back_are_left_out_unless_they_are_named(rig: ControlRig, broker: FakeBroker) -> None:
    for number in range(5):
        broker.put(letter(str(number).encode()))
    broker.put(letter(b"0"), {REPLAYED_BY: "olga"})
    said = list(sent_again(rig, "dead-letters:redrive", {}, 3))
    assert [(each["matched"], each["more"]) for each in said] == [(3, True), (2, False)]
    assert [each.value for each in broker.topics[TOPICS.work]] == [b"0", b"1", b"2", b"3", b"4"]
    assert rig.http.post(f"{V1}/dead-letters:redrive", {"partition": 0, "offset": 5}).json()["sent"] == 1


NO_PLACES = [
    "",
    "[1]",
    "{}",
    "[[-1, 0, 1]]",
    "[[0, 0, 1e30]]",
    '[[0, "0", 1]]',
    "[[0, true, 1]]",
    f"[[0, 0, 1{'0' * 400}]]",
]


@pytest.mark.parametrize("said", NO_PLACES)
@pytest.mark.parametrize("path", ["work:replay", "dead-letters:redrive"])
def test_a_cursor_of_something_else_is_refused(rig: ControlRig, broker: FakeBroker, path: str, said: str) -> None:
    broker.put(item("one"))
    cursor = base64.urlsafe_b64encode(said.encode()).decode().rstrip("=")
    answer = rig.http.post(f"{V1}/{path}?after={cursor}", {})
    assert (answer.status_code, answer.json()["detail"]) == (422, "after: not a cursor of this list")
    assert names(broker) == ["one"]


def test_a_cursor_of_hundreds_of_partitions_still_fits() -> None:
    spans = {number: (10**8 + number, 2 * 10**8) for number in range(400)}
    cursor = write_spans(spans)
    assert cursor is not None
    assert len(cursor) < LONGEST_CURSOR
    assert read_spans(cursor) == spans


def test_what_is_sent_again_is_spread_over_time() -> None:
    now_s, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    assert list(paced(range(1_000), 100, lambda: now_s[0], sleep)) == list(range(1_000))
    assert now_s[0] == pytest.approx(9.99, abs=0.02)
    assert max(slept) < 0.021


def test_a_call_sends_what_its_rate_allows_in_its_time_and_says_that_there_is_more(
    rig: ControlRig, broker: FakeBroker
) -> None:
    for number in range(12):
        broker.put(item(str(number)))
    said = rig.http.post(f"{V1}/work:replay", {"rate": 2}).json()
    assert (said["sent"], said["more"]) == (10, True)
    answer = rig.http.post(f"{V1}/work:replay?after={said['next']}", {"rate": 2})
    assert (answer.json()["sent"], answer.json()["more"]) == (2, False)


@pytest.mark.parametrize("rate", [0, -1, 5_001, 1.5, "9", True])
def test_a_rate_that_is_none_is_refused(rig: ControlRig, broker: FakeBroker, rate: object) -> None:
    broker.put(item("one"))
    for path in ("work:replay", "dead-letters:redrive"):
        assert rig.http.post(f"{V1}/{path}", {"rate": rate}).status_code == 422
    assert names(broker) == ["one"]


def test_while_somebody_sends_again_nobody_else_does(rig: ControlRig, broker: FakeBroker) -> None:
    for name in ("one", "two", "three"):
        broker.put(item(name))
    broker.put(letter(b"one"))
    first = rig.http.post(f"{V1}/work:replay?limit=1", {}).json()
    for path in ("work:replay", "dead-letters:redrive"):
        refused = rig.http.post(f"{V1}/{path}", {})
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs/errors#replay_running")
        assert refused.headers["content-type"] == "application/problem+json"
        assert rig.http.post(f"{V1}/{path}", {"dry_run": True}).status_code == 200, "counting is free"
    assert len(names(broker)) == 4
    assert rig.http.post(f"{V1}/work:replay?after={first['next']}", {}).json()["sent"] == 2
    assert rig.http.post(f"{V1}/dead-letters:redrive", {}).json()["sent"] == 1


def test_a_turn_is_taken_once_kept_for_who_goes_on_and_given_back_whatever_happens() -> None:
    now_s = [0.0]
    turn, rest = ReplayTurn(lambda: now_s[0]), {0: (5, 9)}
    with turn.taken(None), pytest.raises(Refused), turn.taken(None):
        pass
    with pytest.raises(OSError), turn.taken(None):
        raise OSError
    with turn.taken(None) as keep:
        keep(rest)
    with pytest.raises(Refused), turn.taken(None):
        pass
    with turn.taken({0: (5, 9)}) as keep:
        keep(rest)
    now_s[0] = CONTINUES_WITHIN_S
    with turn.taken(None) as keep:
        keep(None)
    with turn.taken(None):
        pass


def test_who_sent_what_again_stands_in_the_trail(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(item("one"))
    broker.put(letter(b"one"))
    broker.put(letter(b"two", TOPICS.destinations))
    before = len(trail(rig))
    for path in ("work:replay", "dead-letters:redrive"):
        rig.http.post(f"{V1}/{path}", {"dry_run": True})
        rig.http.post(f"{V1}/{path}", {"partition": 77})
    assert len(trail(rig)) == before
    rig.http.post(f"{V1}/work:replay", {"destination": "a", "since": "2025-01-01T00:00:00Z"})
    rig.http.post(f"{V1}/dead-letters:redrive", {})
    redriven, replayed = trail(rig)[:2]
    assert (replayed["deed"], replayed["author"], replayed["destination"]) == ("replayed", "loopback", "a")
    assert replayed["changes"] == {
        "which": [None, {"destination": "a", "since": "2025-01-01T00:00:00+00:00"}],
        "matched": [None, 1], "refused": [None, 0], "more": [None, False],
    }  # fmt: skip
    assert (redriven["deed"], redriven["author"], redriven["destination"]) == ("redriven", "loopback", WHOLE)
    assert (redriven["changes"]["matched"], redriven["changes"]["refused"]) == ([None, 2], [None, 1])


def test_what_can_not_be_written_down_is_not_sent(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(item("one"))
    broker.put(letter(b"one"))
    with rig.registry.database.transaction() as con:
        con.execute(text("DROP TABLE audit"))
    for path in ("work:replay", "dead-letters:redrive"):
        assert rig.http.post(f"{V1}/{path}", {}).status_code == 503
    assert names(broker) == ["one"]


def test_letters_are_shown_without_secrets(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(letter(b'{"catalog": "postgresql://u:s3cret@h/d"}'))
    broker.put(letter(key="another/a"))
    broker.put(letter(key="who knows"))
    answer = rig.http.get(f"{V1}/dead-letters")
    assert sorted(each["key"] for each in answer.json()["items"]) == ["events/a", "who knows"]
    assert "s3cret" not in answer.text


def test_letters_go_back_to_where_they_came_from_unless_they_were_cut_or_are_controls_own(
    rig: ControlRig, broker: FakeBroker
) -> None:
    broker.put(letter(b"one"))
    broker.put(letter(b"two", TOPICS.progress))
    broker.put(letter(b"three", TOPICS.destinations))
    broker.put(letter(b"four", "somebody.elses"))
    broker.put(letter(b"x" * MAX_PAYLOAD))
    said = rig.http.post(f"{V1}/dead-letters:redrive", {}).json()
    assert (said["matched"], said["sent"], said["refused"]) == (5, 2, 3)
    assert [each.value for each in broker.topics[TOPICS.work]] == [b"one"]
    assert [each.value for each in broker.topics[TOPICS.progress]] == [b"two"]
    assert broker.topics.keys() == {TOPICS.dead_letter, TOPICS.work, TOPICS.progress}


def test_one_letter_can_be_meant(rig: ControlRig, broker: FakeBroker) -> None:
    broker.put(letter(b"one"))
    broker.put(letter(b"two"))
    rig.http.post(f"{V1}/dead-letters:redrive", {"partition": 0, "offset": 1})
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
    spans = scan.spans(TOPICS.work)
    assert sum(end - first for first, end in spans.values()) == 200
    assert sorted(int(record.value or b"") for record in scan.within(TOPICS.work, spans)) == list(range(200))
    beyond = {number: (first + 1, end + 1_000) for number, (first, end) in spans.items()} | {10**6: (0, 5)}
    assert len(list(scan.within(TOPICS.work, beyond))) == 200 - len(spans)
    assert list(scan.within(TOPICS.work, {number: (end, end + 5) for number, (_, end) in spans.items()})) == []
    newest = scan.newest(TOPICS.work, 8)
    assert 0 < len(newest) < 200
    assert all(record.offset > 0 for record in newest)


def test_a_letter_that_nobody_of_ours_sent_is_never_sent_again(rig: ControlRig, broker: FakeBroker) -> None:
    """Whoever sends it signs it."""
    forged = letter(b"forged").model_copy(update={"distrusted": True})
    broker.put(forged)
    said = rig.http.post(f"{V1}/dead-letters:redrive", {}).json()
    assert (said["matched"], said["sent"], said["refused"]) == (1, 0, 1)
    assert rig.http.post(f"{V1}/dead-letters:redrive", {"partition": 0, "offset": 0}).json()["refused"] == 1
    assert TOPICS.work not in broker.topics
