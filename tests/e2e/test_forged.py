"""Forged messages on the broker of a running ``viaduck up`` where nobody signs: nothing of anybody's moves. Where
messages are signed, ``test_bad_input.py`` sends them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from services.cli.runtime.running import RunningViaduck
from shared.contracts.messages import MOST, DesiredState, Destination, ItemKind, LakeRef, WorkItem
from shared.contracts.reports import Frontier
from shared.kafka.topics import Topics
from tests.e2e.deployment import Deployment
from tests.e2e.parts import Parts
from tests.torture.forged import FORGERIES
from tests.torture.wire import Sign

TOPICS = Topics()
VICTIM = "tenant-0"

Letter = dict[str, Any]


@pytest.fixture
def unsigned(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path, 22, parts=Parts(sections={"kafka": {"signing": "off"}}))
    yield made
    made.close()


def published(deployment: Deployment) -> Destination:
    """What control says of the victim."""
    client = _client(deployment) | {"group.id": "nobody", "enable.partition.eof": True}
    consumer = Consumer(client)
    found: list[Destination] = []
    try:
        parts = consumer.list_topics(TOPICS.destinations, timeout=20).topics[TOPICS.destinations].partitions
        consumer.assign([TopicPartition(TOPICS.destinations, number, OFFSET_BEGINNING) for number in parts])
        ended, deadline = 0, time.monotonic() + 60
        while ended < len(parts):
            assert time.monotonic() < deadline, "the topic could not be read"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ended += 1
            elif (value := message.value()) is not None:
                found.append(Destination.from_bytes(value))
    finally:
        consumer.close()
    return max((each for each in found if each.destination == VICTIM), key=lambda each: each.order)


def send(deployment: Deployment, messages: list[tuple[str, str, bytes]], sign: Sign) -> None:
    producer = Producer(_client(deployment))
    for topic, key, value in messages:
        producer.produce(topic, key=key.encode(), value=value, headers=sign(topic, key.encode(), value))
    assert producer.flush(20) == 0


def _client(deployment: Deployment) -> dict[str, Any]:
    return {"bootstrap.servers": (deployment.folder / "state" / "broker.address").read_text().strip()}


def harmful(honest: Destination, stolen: Path) -> list[tuple[str, str, bytes]]:
    """Rows into another lake, a table dropped, a generation for ever, and a ghost whose page nobody can settle."""
    redirected = honest.model_copy(
        update={"lake": LakeRef(catalog=f"sqlite:{stolen}"), "version": honest.version + 1, "revision": "forged"}
    )
    doomed = honest.model_copy(
        update={"drop": True, "state": DesiredState.STOPPED, "version": honest.version + 2, "revision": "forged"}
    )
    forever = json.loads(honest.to_bytes()) | {"generation": 2**63 - 1, "version": honest.version + 3}
    ghost = honest.model_copy(update={"destination": "ghost", "routing_value": "ghost", "registry": MOST})
    dropped = WorkItem(
        item="f" * 32, kind=ItemKind.DROP, pipeline=honest.pipeline, destination=honest.destination,
        generation=honest.generation, through=1,
    )  # fmt: skip
    frozen = Frontier(
        pipeline=honest.pipeline, instance="ghost", cycle=MOST, page=0, pages=1, head=MOST, settled=True
    )  # fmt: skip
    return [
        (TOPICS.destinations, honest.key, redirected.to_bytes()),
        (TOPICS.destinations, honest.key, doomed.to_bytes()),
        (TOPICS.destinations, honest.key, json.dumps(forever).encode()),
        (TOPICS.destinations, ghost.key, ghost.to_bytes()),
        (TOPICS.work, dropped.key, dropped.to_bytes()),
        (TOPICS.progress, honest.pipeline, frozen.to_bytes()),
    ]


def letters(viaduck: RunningViaduck) -> list[Letter]:
    answer = httpx.get(f"{viaduck.url}/v1/pipelines/events/dead-letters", params={"limit": 200}, timeout=20.0)
    found: list[Letter] = answer.raise_for_status().json()["items"]
    return found


def victim(viaduck: RunningViaduck) -> dict[str, Any]:
    return next((each for each in viaduck.destinations() if each["id"] == VICTIM), {})


@pytest.mark.timeout(600)
def test_where_nobody_signs_a_redirect_still_does_not_leave_the_file(unsigned: Deployment, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen.sqlite"
    with unsigned.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, 180)
        unsigned.wait_until_exact(viaduck)
        assert unsigned.log.read_text().count("signing_off") >= 3, "each service says so"
        messages = harmful(published(unsigned), stolen)
        redirect, drop = messages[0], messages[4]
        send(unsigned, [redirect, drop], FORGERIES["unsigned"])
        _until_the_victim_changed(unsigned)
        viaduck.wait_until("the refusal to be shown", lambda: bool(victim(viaduck).get("error")), 60)
        told = victim(viaduck)
        assert told["error"]["type"] == "destination_differs"
        assert "catalog" in told["error"]["message"]
        viaduck.wait_until("its lag to be unknown, never 0", lambda: victim(viaduck).get("lag_seconds", 0) is None, 60)
        assert not stolen.exists(), "no row went there"

        for verb in ("pause", "resume"):  # control says again what the file says
            httpx.post(f"{viaduck.url}/v1/pipelines/events/destinations/{VICTIM}:{verb}", timeout=20).raise_for_status()
        unsigned.wait_until_exact(viaduck)
        viaduck.wait_until("no error", lambda: victim(viaduck).get("error") is None, 60)
    assert unsigned.findings() == []
    assert not stolen.exists()


def _until_the_victim_changed(deployment: Deployment) -> None:
    """Steps of the history, until some rows of the victim's are among them."""
    value = next(each.value for each in deployment.destinations if each.id == VICTIM)
    before = _rows(deployment, value)
    for _ in range(60):
        deployment.step()
        if _rows(deployment, value) != before:
            return
    raise AssertionError("the history left the victim alone")


def _rows(deployment: Deployment, value: str) -> object:
    truth = deployment.source.truth
    return truth.slice(truth.head, value)
