from __future__ import annotations

import base64

from structlog.testing import capture_logs

from shared.contracts.messages import DeadLetter
from shared.kafka.dead_letter import MAX_PAYLOAD, Allowance, dead_letter
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from tests.fast.fake_sender import FakeSender
from tests.fast.waiting import eventually


def letters(settings: KafkaSettings, topics: Topics, publisher: Publisher, record: Record) -> list[Record]:
    reports: list[Exception | None] = []
    dead_letter(publisher, topics, record, "not a WorkItem", "applier", reports.append)
    eventually(lambda: reports == [None])
    seen: list[Record] = []
    follower = Follower(settings, "test", [topics.dead_letter])
    follower.start(seen.append)
    assert follower.caught_up.wait(30)
    follower.stop()
    return seen


def test_a_dead_letter_keeps_the_message_its_place_its_headers_and_the_reason(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    record = Record(topics.work, 2, 17, "p/d", b"\xff{", {"traceparent": "t"})
    (received,) = letters(settings, topics, publisher, record)
    letter = DeadLetter.from_bytes(received.value or b"")
    assert (letter.topic, letter.partition, letter.offset, letter.key) == (topics.work, 2, 17, "p/d")
    assert base64.b64decode(letter.payload) == b"\xff{"
    assert (letter.reason, letter.by, received.headers) == ("not a WorkItem", "applier", {"traceparent": "t"})


def test_a_message_too_large_to_be_wrapped_is_cut_rather_than_lost(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    record = Record(topics.work, 0, 0, None, b"x" * 1_000_000)
    (received,) = letters(settings, topics, publisher, record)
    assert len(base64.b64decode(DeadLetter.from_bytes(received.value or b"").payload)) == MAX_PAYLOAD


def test_a_flood_of_forged_messages_is_counted_and_not_written_again_and_again() -> None:
    now_s, sent, topics = [0.0], FakeSender(), Topics()
    forged = Allowance(5, lambda: now_s[0])
    with capture_logs() as logged:
        for number in range(1_000):
            record = Record(topics.work, 0, number, f"p/{number}", b"{}", distrust="it has no signature")
            dead_letter(sent, topics, record, "it has no signature", "applier", forged=forged)
        assert len(sent.keys) == 5
        assert len(logged) == 6, "five letters, and that there are more"
        ours = Record(topics.work, 0, 1_000, "ours", b"{}")
        dead_letter(sent, topics, ours, "of a newer version", "applier", forged=forged)
        assert sent.keys[-1] == "ours", "what was meant for us can be replayed"
        now_s[0] = 61.0
        late = Record(topics.work, 0, 1_001, "late", b"{}", distrust="it has no signature")
        dead_letter(sent, topics, late, "it has no signature", "applier", forged=forged)
    assert sent.keys[-1] == "late"
    assert [line["messages"] for line in logged if line["event"] == "forged_messages_suppressed"] == [995]
