"""The site's second pipeline: a topic that lands beside the lake, written to under every fault, and judged like it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from confluent_kafka import Producer
from viaduck_client import Action, Client, ClientError

from shared.kafka.topics import Topics
from tests.e2e.topics import Topic
from tests.servers.kafka import Kafka
from tests.torture.site import CLICKS, OURS, ROUTED_BY, Site
from tests.world.duck import connect
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_truth import TopicTruth, covers
from tests.world.topic_witness import TopicWitness

PARTITIONS = 2
MOST_AT_ONCE = 6
"""Records of one step."""

TO = (OURS, OURS, OURS, "others", None)
"""Whose a record is where the topic is routed."""

KEYS, DELETES = 5, 0.1
"""Keys in a partition, and how many records are to delete theirs."""

LOOK_EVERY_S = 0.1
ANSWERS_WITHIN_S = 10.0
DELIVERED_WITHIN_S = 60.0

NEWEST = (
    "SELECT commit_extra_info FROM ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info LIKE '%\"through_at\"%' AND commit_extra_info NOT LIKE '%\"maintenance\"%'"
    " ORDER BY snapshot_id DESC LIMIT 1"
)

EXPIRED = frozenset({"history_expired"})
RECREATED = EXPIRED | {"source_recreated"}
"""An item that was planned for the former topic, and finds fewer records in the new one, says that they are gone."""

NOTHING = frozenset[str]()


class Clicks:
    """The topic, who writes to it, and its destination. Nobody else writes there, so what it holds is known.

    A park is an error unless something happened that has to end in one (``expected_park``); then an operator reseeds.
    """

    def __init__(self, site: Site, kafka: Kafka, seed: int) -> None:
        self._site, self._kafka, self.rng = site, kafka, random.Random(seed)
        self._control = Client(f"http://127.0.0.1:{site.port}", timeout_s=ANSWERS_WITHIN_S)
        self._con = connect()
        self._witness = TopicWitness(kafka.bootstrap, site.topic, keyed=site.is_keyed)
        self._rejected = TopicWitness(kafka.bootstrap, Topics(site.topic_prefix).rejected(CLICKS))
        self.oracle = TopicOracle(site.clicks)
        self.expected_park = NOTHING
        """The types of error of which one is right now."""
        self.reseeds = 0
        self._numbers = iter(range(1_000_000_000))
        self._left, self._reseeded = 0, 0
        """The generation in which the former topic was left, and the last one that an operator ended."""
        self._begin()

    def close(self) -> None:
        self._control.close()
        self._con.close()

    @property
    def partitions(self) -> int:
        return self._partitions

    @property
    def compared(self) -> int:
        """Stamped snapshots that the oracle has compared with the topic."""
        return self.oracle.compared

    # -- what happens to the topic ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Some records. They come when the broker takes them: nobody waits for it."""
        for _ in range(self.rng.randint(1, MOST_AT_ONCE)):
            self.produce(self._producer)
        self._producer.poll(0)

    def write_to(self, partition: int) -> None:
        """One record of this partition."""
        self._produce(self._producer, partition)

    def produce(self, producer: Producer) -> None:
        """One record, in whatever transaction the producer has begun."""
        self._produce(producer, self.rng.randrange(self._partitions))

    def _produce(self, producer: Producer, partition: int) -> None:
        """Where it has a key, all records of that key are in this partition."""
        if not self._site.is_keyed:
            producer.produce(self._site.topic, self._value(), partition=partition)
            return
        key = f"{partition}-{self.rng.randrange(KEYS)}"
        value = None if self.rng.random() < DELETES else self._value()
        producer.produce(self._site.topic, value, key, partition)

    def producer(self, **properties: str) -> Producer:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        return Producer({"bootstrap.servers": self._kafka.bootstrap, "linger.ms": 2, "log_level": 0, **given})

    def grow(self) -> None:
        """One partition more."""
        self._flush()
        self._partitions += 1
        self._topic.grow(self._partitions)
        self._producer = self._connected()

    def forget(self, partition: int) -> int:
        """Retention takes all that a partition holds now. Returns the offset at which it begins then."""
        truth = self.remember()
        end = truth.newest.get(partition, 0)
        truth.oldest = {**(truth.oldest or {}), partition: end}
        self._topic.forget_before(**{f"p{partition}": end})
        return end

    @contextmanager
    def gone(self) -> Iterator[None]:
        """What is done meanwhile ends the topic; another one of its name follows."""
        self.remember()
        self._left = self.newest().get("generation", 0)
        yield
        self.expected_park = RECREATED
        self._begin()

    def recreate(self) -> None:
        with self.gone():
            self._topic.drop()

    def _begin(self) -> None:
        self._partitions = PARTITIONS
        self._topic = Topic(self._kafka, PARTITIONS, self._site.topic)
        self._producer = self._connected()

    def _connected(self) -> Producer:
        """A client learns of new partitions after minutes."""
        return self.producer(enable_idempotence="true", message_timeout_ms="600000")

    def _flush(self) -> None:
        left = self._producer.flush(DELIVERED_WITHIN_S)
        assert left == 0, f"{left} records were not delivered within {DELIVERED_WITHIN_S:.0f} s"

    def _value(self) -> bytes:
        """Mostly a record as others are; now and then one with a new field, a misfit, or none at all."""
        number = next(self._numbers)
        if self.rng.random() < 0.05:
            return f"no JSON {number}".encode()
        record = {"id": number, "v": self.rng.choice(["a", 1, None]), f"f{self.rng.randrange(4)}": number}
        to = {ROUTED_BY: self.rng.choice(TO)} if self._site.is_routed else {}
        return json.dumps(record | to).encode()

    # -- what became of it --------------------------------------------------------------------------------------------

    def remember(self) -> TopicTruth:
        """All that the topic holds, once everything written was delivered."""
        self._flush()
        return self._witness.look()

    def settle(self, timeout_s: float) -> float:
        """Seconds until the destination holds all that the topic holds. Raises ``TimeoutError``."""
        began, truth = time.monotonic(), self.remember()
        while not self.is_level(truth):
            if time.monotonic() - began > timeout_s:
                said = f"{self.newest()}, {self.status()}"
                raise TimeoutError(f"{CLICKS} did not reach {truth.newest} within {timeout_s:.0f} s: {said}")
            self._operate()
            time.sleep(LOOK_EVERY_S)
        self.expected_park = NOTHING
        return time.monotonic() - began

    def is_level(self, truth: TopicTruth) -> bool:
        """Whether its lake itself says so, of a life that began after a former topic ended."""
        stamp, due = self.newest(), self._due(truth)
        held = json.loads(stamp.get("through_at", "{}"))
        reached = {int(partition): offset for partition, offset in held.items()}
        is_there = covers(reached, due.newest if due.last is None else due.last)
        if self._site.is_keyed:
            is_there = due.rows({}, reached) == due.rows({}, due.newest)
        return stamp.get("generation", 0) > self._left and is_there

    def _due(self, truth: TopicTruth) -> TopicTruth:
        """What of the topic is the destination's."""
        return truth.of(ROUTED_BY, OURS) if self._site.is_routed else truth

    def wait_until_parked(self, timeout_s: float) -> Mapping[str, Any]:
        """What its status says once it is parked, which must be for what happened. Raises ``TimeoutError``."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status()) is None or status["state"] != "parked":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{CLICKS} is not parked after {timeout_s:.0f} s: {status}")
            time.sleep(LOOK_EVERY_S)
        self._require_expected(status)
        return status

    def status(self) -> Mapping[str, Any] | None:
        """None while control does not answer."""
        try:
            return self._control.destination(CLICKS, CLICKS)
        except ClientError:
            return None

    def act(self, action: Action) -> None:
        self._control.act(CLICKS, CLICKS, action)

    def begin_again(self) -> None:
        """An operator reseeds what is parked; ``settle`` does so, too."""
        self._operate()

    def findings(self) -> list[str]:
        """What is wrong at any snapshot since the last call; the destination must hold all that the topic holds."""
        truth = self.remember()
        due = {topic: self._due(each) for topic, each in self._witness.truths.items()}
        found = list(map(str, self.oracle.look(self._con, due, arrived=self._due(truth))))
        return [*found, *self._lost_rejected(truth)]

    def _lost_rejected(self, truth: TopicTruth) -> list[str]:
        """Records that neither became rows nor are on the topic of those that could not."""
        seed, stamp = self.oracle.seed, self.oracle.stamp
        if seed is None or stamp is None:
            return []
        wanted = {each.value for each in truth.rejected(seed.through_at or {}, stamp.through_at or {})}
        if not wanted:
            return []
        self._rejected.look()
        there = {each.value for kept in self._rejected.truths.values() for each in kept.records.values()}
        return [f"{CLICKS}: rejected and not to be found: {each!r}" for each in sorted(wanted - there, key=repr)]

    def _operate(self) -> None:
        """Somebody looks at it, and reseeds what lost its topic."""
        status = self.status()
        if status is None or status["state"] != "parked" or status["generation"] <= self._reseeded:
            return
        self._require_expected(status)
        try:
            self._control.reseed(CLICKS, CLICKS)
        except ClientError:
            return  # control was started a moment ago; somebody asks again
        self._reseeded = int(status["generation"])
        self.reseeds += 1

    def _require_expected(self, status: Mapping[str, Any]) -> None:
        if status["error"]["type"] not in self.expected_park:
            raise AssertionError(f"{CLICKS} is parked, and nothing happened for which it should be: {status['error']}")

    def newest(self) -> dict[str, Any]:
        """The stamp of the newest commit that moved the destination; empty where there is none, or nobody can tell."""
        try:
            with self._site.connected(self._site.clicks) as con:
                con.execute("SET lock_timeout = '200ms'")
                row = con.execute(NEWEST).fetchone()
        except psycopg.Error:
            return {}
        return {} if row is None else dict(json.loads(row[0]))
