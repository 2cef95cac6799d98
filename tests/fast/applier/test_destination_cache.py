"""What an applier knows of destinations, in whatever order it reads the topic."""

from __future__ import annotations

import itertools

import pytest

from services.applier.destination_cache import DestinationCache
from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import Destination
from shared.kafka.record import Record
from tests.fast.reader.simulation import spec


def record(said: Destination, partition: int = 0) -> Record:
    return Record("viaduck.destinations", partition, 0, said.key, said.to_bytes())


def version(number: int, **changes: object) -> Destination:
    return spec("a").model_copy(update={"registry": 5, "version": number, **changes})


LIVES = [version(1), version(4, generation=2), version(6, generation=2, removed=True)]


@pytest.mark.parametrize("order", list(itertools.permutations(LIVES)))
def test_one_that_was_removed_stays_so_whatever_is_read_last(order: tuple[Destination, ...]) -> None:
    """Its older messages lie in another partition since some were added."""
    directory = DestinationCache()
    for number, each in enumerate(order):
        directory.put(record(each, number))
    assert directory.get(LIVES[0].key) is None


@pytest.mark.parametrize("order", list(itertools.permutations([*LIVES, version(9, generation=3)])))
def test_the_last_life_holds_whatever_is_read_last(order: tuple[Destination, ...]) -> None:
    directory = DestinationCache()
    for number, each in enumerate(order):
        directory.put(record(each, number))
    found = directory.get(LIVES[0].key)
    assert found is not None
    assert (found.generation, found.version) == (3, 9)


def test_a_registry_that_began_later_knows_better() -> None:
    directory = DestinationCache()
    directory.put(record(version(100)))
    directory.put(record(version(1, registry=6, routing_value="other")))
    directory.put(record(version(101)))
    found = directory.get(LIVES[0].key)
    assert found is not None
    assert found.routing_value == "other"


def test_the_routing_values_of_a_pipeline_follow_what_is_said_of_its_destinations() -> None:
    directory = DestinationCache()
    other = spec("b").model_copy(update={"routing_value": "elsewhere", "pipeline": "q"})
    directory.put(record(other))
    assert directory.routed("p") == frozenset()
    directory.put(record(version(1, routing_value="one")))
    assert directory.routed("p") == {"one"}
    directory.put(record(version(2, routing_value="another")))
    directory.put(record(version(1, routing_value="one")))
    assert directory.routed("p") == {"another"}
    assert directory.routed("q") == {"elsewhere"}
    directory.put(record(version(3, routing_value="another", removed=True)))
    assert directory.routed("p") == frozenset()


def test_a_tombstone_says_nothing() -> None:
    directory = DestinationCache()
    directory.put(record(version(1)))
    directory.put(Record("viaduck.destinations", 0, 1, LIVES[0].key, None))
    assert directory.get(LIVES[0].key) is not None


def test_what_a_stranger_sent_is_refused_and_changes_nothing() -> None:
    directory = DestinationCache()
    directory.put(record(version(1)))
    forged = version(2, routing_value="redirected")
    with pytest.raises(UnreadableMessage, match="forged"):
        directory.put(Record("viaduck.destinations", 0, 1, forged.key, forged.to_bytes(), distrust="it was forged"))
    assert directory.get(forged.key) == version(1)
