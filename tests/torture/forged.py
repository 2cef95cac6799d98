"""Messages that would do harm, if anybody believed them: each is what a service of ours might say, and none did."""

from __future__ import annotations

from collections.abc import Mapping

from shared.contracts.messages import (
    MAX_GENERATION,
    MOST,
    DesiredState,
    Destination,
    ItemKind,
    LakeRef,
    PipelineDocument,
    SeedMode,
    WorkItem,
)
from shared.contracts.reports import Frontier
from shared.kafka.topics import Topics
from tests.signed import STRANGERS
from tests.torture.wire import Headers, Sign, signed


def harmful(topics: Topics, name: str) -> Mapping[str, tuple[str, bytes]]:
    """By topic, key and value: rows go elsewhere, a table is dropped, nobody lags, a pipeline is gone."""
    redirected = Destination(
        pipeline="events", destination=name, generation=MAX_GENERATION, routing_value="of another tenant",
        state=DesiredState.RUNNING, lake=LakeRef(catalog="sqlite:/nowhere/of-a-stranger.sqlite"), table="events",
        seed_mode=SeedMode.SCAN, revision="forged", registry=MOST, version=MOST,
    )  # fmt: skip
    dropped = WorkItem(
        item="f" * 32, kind=ItemKind.DROP, pipeline="events", destination=name, generation=1, through=1
    )  # fmt: skip
    nobody_lags = Frontier(
        pipeline="events", instance="torture", cycle=MOST, page=0, pages=1, head=MOST, settled=True
    )  # fmt: skip
    gone = PipelineDocument(pipeline="events", version=MOST)
    return {
        topics.destinations: (redirected.key, redirected.to_bytes()),
        topics.work: (dropped.key, dropped.to_bytes()),
        topics.progress: (nobody_lags.key, nobody_lags.to_bytes()),
        topics.pipelines: (gone.pipeline, gone.to_bytes()),
    }


def unsigned(_: str, __: bytes | None, ___: bytes | None) -> Headers:
    return []


def with_another_key(topic: str, key: bytes | None, value: bytes | None) -> Headers:
    return signed(topic, key, value, STRANGERS)


def of_another_topic(topic: str, key: bytes | None, value: bytes | None) -> Headers:
    """As if a message of ours had been moved."""
    return signed(f"{topic}.other", key, value)


def of_another_key(topic: str, key: bytes | None, value: bytes | None) -> Headers:
    return signed(topic, (key or b"") + b"0", value)


def of_another_value(topic: str, key: bytes | None, value: bytes | None) -> Headers:
    return signed(topic, key, (value or b"") + b" ")


FORGERIES: Mapping[str, Sign] = {
    "unsigned": unsigned,
    "of another key holder": with_another_key,
    "moved from another topic": of_another_topic,
    "moved from another key": of_another_key,
    "changed": of_another_value,
}
