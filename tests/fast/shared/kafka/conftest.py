from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.publisher import Publisher
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests.signed import SIGNING

numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> EmbeddedBroker:
    return EmbeddedBroker()


@pytest.fixture
def settings(broker: EmbeddedBroker) -> KafkaSettings:
    """Topics of its own for each test, so that one broker serves them all."""
    own = KafkaSettings(bootstrap=broker.bootstrap, prefix=f"test-{next(numbers)}", embedded=True, signing=SIGNING)
    ensure(own)
    return own


@pytest.fixture
def topics(settings: KafkaSettings) -> Topics:
    return Topics(settings.prefix)


@pytest.fixture
def publisher(settings: KafkaSettings) -> Iterator[Publisher]:
    publisher = Publisher(settings, "test-publisher")
    yield publisher
    publisher.close()
