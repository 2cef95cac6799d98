"""What the services act on was written by somebody who has the deployment's key."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.config.model import Kafka
from shared.contracts.errors import ConfigError, UnreadableMessage
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.signing import KEY_FILE, SIGNATURE_HEADER, UNSIGNED, WRONG, Signing, own_key, signing_of
from shared.kafka.topics import Topics
from tests.fast.waiting import eventually
from tests.signed import ENVIRON, KEY, SIGNING, STRANGERS

MESSAGE = ("viaduck.destinations", b"events/a", b'{"v":1}')


def received(settings: KafkaSettings, topic: str, count: int) -> list[Record]:
    seen: list[Record] = []
    follower = Follower(settings, "test", [topic])
    follower.start(seen.append)
    eventually(lambda: len(seen) == count)
    follower.stop()
    return seen


def test_what_a_publisher_sends_is_believed(settings: KafkaSettings, topics: Topics, publisher: Publisher) -> None:
    publisher.send(topics.work, "p/d", b"item", {"traceparent": "t"})
    publisher.send(topics.work, "p/d", None)
    first, second = received(settings, topics.work, 2)
    assert (first.value, second.value) == (b"item", None)
    assert first.headers == {"traceparent": "t"}, "the signature itself is nobody's business"


@pytest.mark.parametrize("signing", [None, STRANGERS])
def test_what_a_stranger_sends_can_be_put_aside_and_not_be_read(
    settings: KafkaSettings, topics: Topics, signing: Signing | None
) -> None:
    stranger = Publisher(replace(settings, signing=signing), "stranger")
    stranger.send(topics.work, "p/d", b"item")
    stranger.close()
    (record,) = received(settings, topics.work, 1)
    with pytest.raises(UnreadableMessage, match="signature"):
        record.value  # noqa: B018 - asking is what is refused
    assert record.raw == b"item"


def test_a_signature_that_was_sent_along_is_not_sent_again(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    publisher.send(topics.work, "p/d", b"item", {SIGNATURE_HEADER: "1:00"})
    (record,) = received(settings, topics.work, 1)
    assert record.value == b"item"


SWAPS: dict[str, Callable[[str, bytes, bytes], tuple[str, bytes | None, bytes | None]]] = {
    "the value": lambda topic, key, value: (topic, key, value.replace(b"1", b"2")),
    "the key": lambda topic, _, value: (topic, b"events/b", value),
    "the topic": lambda _, key, value: ("viaduck.work", key, value),
    "the prefix": lambda _, key, value: ("other.destinations", key, value),
    "the value by a tombstone": lambda topic, key, _: (topic, key, None),
    "the value by an empty one": lambda topic, key, _: (topic, key, b""),
    "the key by none": lambda topic, _, value: (topic, None, value),
    "where one ends and the other begins": lambda topic, key, value: (topic, key + value[:1], value[1:]),
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
def test_a_signature_is_of_one_message(swap: Callable[..., tuple[str, bytes | None, bytes | None]]) -> None:
    signature = SIGNING.signature(*MESSAGE)
    assert SIGNING.distrust(*MESSAGE, signature) is None
    assert SIGNING.distrust(*swap(*MESSAGE), signature) == WRONG


NO_SIGNATURES = ["", "1:", "1:00", "2:" + SIGNING.signature(*MESSAGE)[2:], "ä", "1:" + "z" * 64]


@pytest.mark.parametrize("said", NO_SIGNATURES)
def test_a_signature_that_is_none_is_none(said: str) -> None:
    assert SIGNING.distrust(*MESSAGE, said) in (UNSIGNED, WRONG)


def test_an_empty_value_and_none_are_two(settings: KafkaSettings) -> None:
    assert SIGNING.distrust("t", b"k", None, SIGNING.signature("t", b"k", b"")) == WRONG
    assert SIGNING.distrust("t", None, b"v", SIGNING.signature("t", b"", b"v")) == WRONG


def test_while_keys_are_changed_both_count_and_the_new_one_signs() -> None:
    both = Signing(STRANGERS.key, (SIGNING.key,))
    assert both.distrust(*MESSAGE, SIGNING.signature(*MESSAGE)) is None
    assert both.distrust(*MESSAGE, both.signature(*MESSAGE)) is None
    assert SIGNING.distrust(*MESSAGE, both.signature(*MESSAGE)) == WRONG


def test_no_key_is_ever_shown(settings: KafkaSettings) -> None:
    shown = repr(Signing(b"k" * 32, (b"f" * 32,))) + repr(settings)
    assert "k" * 32 not in shown
    assert "f" * 32 not in shown
    assert KEY not in shown


class TestWhereTheKeyComesFrom:
    def test_a_variable(self, tmp_path: Path) -> None:
        found = signing_of(Kafka(signing_key_env="K"), tmp_path, {"K": f" {KEY}\n"})
        assert found == SIGNING

    def test_a_file_beside_the_configuration(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_text(f"{KEY}\n")
        assert signing_of(Kafka(signing_key_file="key"), tmp_path, {}) == SIGNING

    def test_what_viaduck_up_made(self, tmp_path: Path) -> None:
        assert signing_of(Kafka(), tmp_path, ENVIRON) == SIGNING

    def test_what_the_file_names_goes_before_it(self, tmp_path: Path) -> None:
        assert signing_of(Kafka(signing_key_env="K"), tmp_path, {**ENVIRON, "K": "o" * 32}) == Signing(b"o" * 32)

    def test_the_former_one(self, tmp_path: Path) -> None:
        kafka = Kafka(signing_key_env="K", former_signing_key_env="F")
        assert signing_of(kafka, tmp_path, {"K": KEY, "F": "f" * 32}) == Signing(KEY.encode(), (b"f" * 32,))

    def test_none_where_it_is_off(self, tmp_path: Path) -> None:
        assert signing_of(Kafka(signing="off"), tmp_path, ENVIRON) is None

    @pytest.mark.parametrize(
        ("kafka", "said"),
        [
            (Kafka(), "kafka.signing_key_env: needed by a service that runs alone"),
            (Kafka(signing_key_env="K"), "kafka.signing_key_env: the environment variable K is not set"),
            (Kafka(signing_key_env="SHORT"), "kafka.signing_key_env: the key is shorter than 32"),
            (Kafka(signing_key_file="none"), "kafka.signing_key_file: .*none can't be read: No such file"),
            (Kafka(signing_key_file="."), "kafka.signing_key_file: .* can't be read: Is a directory"),
        ],
    )
    def test_without_one_that_can_be_used_it_says_which_to_set(self, tmp_path: Path, kafka: Kafka, said: str) -> None:
        with pytest.raises(ConfigError, match=said) as wrong:
            signing_of(kafka, tmp_path, {"SHORT": "hunter2"})
        assert "hunter2" not in str(wrong.value)

    def test_the_one_that_is_made_is_kept_and_nobody_else_may_read_it(self, tmp_path: Path) -> None:
        file = own_key(tmp_path / "state")
        before = file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(bytes.fromhex(before)) == 32
        assert own_key(tmp_path / "state").read_text() == before
        assert own_key(tmp_path / "other").read_text() != before
        assert signing_of(Kafka(), tmp_path, {KEY_FILE: str(file)}) == Signing(before.encode())

    def test_one_that_others_may_read_is_refused(self, tmp_path: Path) -> None:
        os.chmod(own_key(tmp_path), 0o644)  # noqa: PTH101
        with pytest.raises(ConfigError, match="may be read by others"):
            own_key(tmp_path)

    def test_one_that_was_never_finished_is_made_anew(self, tmp_path: Path) -> None:
        own_key(tmp_path).write_text("")
        assert len(own_key(tmp_path).read_text()) == 64
