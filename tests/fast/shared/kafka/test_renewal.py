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

    def identities(self, names: Iterable[str], timeout_s: float = 0.0) -> Mapping[str, DescribedTopic]:
        said = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        if isinstance(said, Exception):
            raise said
        return {name: DescribedTopic(said, 1) for name in names}


def is_renewed(*told: Exception | str) -> bool:
    settings, renewed = KafkaSettings(bootstrap="127.0.0.1:1"), threading.Event()
    watch = RenewalWatch(settings, "test", renewed.set, ToldBroker(settings, *told))
    watch.start()
    try:
        return renewed.wait(15.0)
    finally:
        watch.stop()


def test_topics_that_are_others_than_before_are_noticed() -> None:
    assert is_renewed("one", "two")


def test_a_broker_that_is_away_for_a_moment_ends_no_watch() -> None:
    assert is_renewed("one", DependencyError("kafka", "away", ""), "two")


def test_an_error_nobody_thought_of_ends_no_watch() -> None:
    """A machine that stood still made a request of the client's run out of time in a way that it never does else."""
    assert is_renewed("one", TimeoutError(), "two")
