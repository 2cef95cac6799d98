"""The watch of topic identities, with a broker that says what a test wants; the end-to-end tests have a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from shared.contracts.errors import DependencyError
from shared.kafka.broker import Broker, DescribedTopic
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings


class ToldBroker(Broker):
    """Answers with what is told, one after the other, and then with the last for ever."""

    def __init__(self, settings: KafkaSettings, *told: Exception | str) -> None:
        super().__init__(settings)
        self._told = list(told)
        self.waits_s: list[float] = []

    def identities(self, names: Iterable[str], timeout_s: float = 0.0) -> Mapping[str, DescribedTopic]:
        self.waits_s.append(timeout_s)
        said = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        if isinstance(said, Exception):
            raise said
        return {name: DescribedTopic(said, 1) for name in names}


def is_renewed(*told: Exception | str) -> bool:
    return bool(waits_until_renewed(*told))


def waits_until_renewed(*told: Exception | str) -> list[float]:
    """How long each look would have waited for its answer; none where nothing was renewed."""
    settings, renewed = KafkaSettings(bootstrap="127.0.0.1:1"), threading.Event()
    broker = ToldBroker(settings, *told)
    watch = RenewalWatch(settings, "test", renewed.set, broker)
    watch.start()
    try:
        return broker.waits_s[: len(told)] if renewed.wait(25.0) else []
    finally:
        watch.stop()


def test_topics_that_are_others_than_before_are_noticed() -> None:
    assert is_renewed("one", "two")


def test_a_broker_that_is_away_for_a_moment_ends_no_watch() -> None:
    assert is_renewed("one", DependencyError("kafka", "away", ""), "two")


def test_each_look_that_failed_makes_the_next_one_wait_longer_until_one_succeeds() -> None:
    """A slow broker is heard, and one that is gone takes little: a client that waits for it takes a core."""
    away = DependencyError("kafka", "away", "")
    assert waits_until_renewed("one", away, away, "one", "two") == [1.0, 1.0, 2.0, 4.0, 1.0]


def test_an_error_nobody_thought_of_ends_no_watch() -> None:
    """A machine that stood still made a request of the client's run out of time in a way that it never does else."""
    assert is_renewed("one", TimeoutError(), "two")
