"""Where a topic's destination may be rewound to: offsets that it has passed, and that the topic still retains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from services.control.model.lifecycle import Refused
from services.control.model.problems import FieldError, InvalidEntry
from services.control.view.observed_state import ObservedLife
from shared.config.model import Config, TopicSource
from shared.contracts.positions import Vector
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicIdentity, TopicLog

CLIENT_ID = "viaduck-control-rewind"

BY_OFFSET = 'a position in a topic is an offset by partition, such as {"to": {"0": 100}}'
RESEED = "reseed the destination, which begins at source.start again"


class RewindableLog(Protocol):
    """The part of ``shared.kafka.topic_log.TopicLog`` that is used here."""

    def identity(self) -> TopicIdentity: ...
    def oldest(self, partitions: int) -> Vector: ...


Open = Callable[[Config, TopicSource], RewindableLog]
"""Opens the topic that a pipeline reads."""


def opening(environ: Mapping[str, str]) -> Open:
    """The topic itself, with the variables of this process."""
    return lambda config, topic: TopicLog(topic_settings(config, environ), topic.topic, CLIENT_ID)


def position_of(config: Config, seen: ObservedLife | None, to: Mapping[int, int], open_log: Open) -> Vector:
    """The whole position: partitions that ``to`` does not name stay where they are.

    ``seen``: what was said of the destination in its present life. Raises ``Refused``, ``InvalidEntry``, and a
    ``SourceError`` where the topic can't be asked.
    """
    if config.topic is None:
        raise Refused("invalid", "the source is a lake: offsets by partition are of topics", 'send {"to": 12}')
    _require_rows_told_apart(config, config.topic)
    if seen is None or seen.position_at is None:
        said = "where the destination is now is not known"
        raise Refused("conflict", said, "try again once it is seeded and its status tells a position")
    log = open_log(config, config.topic)
    partitions = log.identity().partitions
    oldest, reached = log.oldest(partitions).by_partition, Vector.parse(seen.position_at).by_partition
    faults = [
        FieldError(f"to.{each}", fault)
        for each, offset in sorted(to.items())
        if (fault := _fault(each, offset, partitions, reached.get(each, 0))) is not None
    ]
    if faults:
        raise InvalidEntry(faults)
    gone = [each for each, offset in sorted(to.items()) if offset < oldest.get(each, 0)]
    if gone:
        named = "; ".join(
            f"partition {each} begins at offset {oldest[each]} now, and {to[each]} is gone" for each in gone
        )
        choose = ", ".join(f"{oldest[each]} to {reached.get(each, 0)} of partition {each}" for each in gone)
        raise Refused("not_retained", f"the topic no longer has these records: {named}", f"choose {choose}")
    return Vector.of({**reached, **to})


def _require_rows_told_apart(config: Config, topic: TopicSource) -> None:
    """Raises ``Refused`` where it is not known of a row which record it is of."""
    if config.routing.key_columns:
        said = "with routing.key_columns a newer record has replaced rows that a rewind would need"
        raise Refused("conflict", said, RESEED)
    if not {"partition", "offset"} <= set(topic.metadata):
        said = "source.metadata lacks partition or offset, by which a rewind knows the rows to take back"
        raise Refused("conflict", said, RESEED)


def _fault(partition: int, offset: int, partitions: int, reached: int) -> str | None:
    if partition >= partitions:
        return f"the topic has {partitions} partitions, 0 to {partitions - 1}"
    if offset > reached:
        return f"offset {offset} lies beyond the position, which is {reached}: a rewind goes back"
    return None
