"""An admin client that does not find its way back is replaced."""

from __future__ import annotations

import weakref

import pytest

from shared.kafka import admin
from shared.kafka.admin import REPLACE_AFTER_S, Admin
from shared.kafka.settings import KafkaSettings


class Lost:
    """A client of librdkafka that is without a connection for good."""

    def poll(self, _: float) -> int:
        return 0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Admin:
    monkeypatch.setattr(admin, "AdminClient", lambda _: Lost())
    return Admin(KafkaSettings("nowhere:1"), "viaduck-test", clock)


def test_a_client_that_fails_for_longer_than_a_request_takes_is_replaced_once(lost: Admin, clock: Clock) -> None:
    first = lost.client
    for _ in range(2):
        lost.problem()
        clock.now_s += REPLACE_AFTER_S / 2
    assert lost.client is first
    lost.problem()
    second = lost.client
    assert second is not first
    lost.problem()
    assert lost.client is second, "the new one gets as long"


def test_a_request_that_succeeds_between_two_failures_keeps_the_client(lost: Admin, clock: Clock) -> None:
    first = lost.client
    lost.problem()
    clock.now_s += REPLACE_AFTER_S
    lost.works()
    lost.problem()
    assert lost.client is first


def test_requests_of_the_former_client_still_end(lost: Admin, clock: Clock) -> None:
    """A client that is collected takes its futures along, and what waits for them waits without end."""
    first = weakref.ref(lost.client)
    lost.problem()
    clock.now_s += REPLACE_AFTER_S
    lost.problem()
    assert first() is not None
    assert first() is not lost.client
