"""The flights of 2013 as a topic's records: each event that an airport's systems would send, in JSON, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import duckdb
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from shared.contracts.errors import DependencyError
from shared.kafka.broker import Broker
from shared.kafka.failure import describe
from shared.kafka.settings import KafkaSettings
from viaduck_demo.flights import load_year

PARTITIONS = 8
BATCH = 50_000
DELIVERED_WITHIN_S = 120.0
CREATED_WITHIN_S = 30.0
BROKER_WITHIN_S = 5.0
FULL_POLL_S = 0.1

CLIENT = {"linger.ms": 50, "compression.type": "lz4", "queue.buffering.max.messages": 500_000}

EVENTS = """
    SELECT flight_id::VARCHAR, record FROM (
        SELECT flight_date, 0 AS minute, 'scheduled' AS kind, flight_id, to_json({
            event: 'scheduled', flight_id: flight_id, carrier: carrier, flight: flight, flight_date: flight_date,
            origin: origin, dest: dest, distance: distance, scheduled_hour: scheduled_hour,
            sched_dep_time: sched_dep_time, sched_arr_time: sched_arr_time})::VARCHAR AS record
        FROM year_of_flights
        UNION ALL
        SELECT flight_date, dep_time, 'departed', flight_id, to_json({
            event: 'departed', flight_id: flight_id, carrier: carrier, flight: flight, flight_date: flight_date,
            origin: origin, tailnum: tailnum, dep_time: dep_time, dep_delay: dep_delay})::VARCHAR
        FROM year_of_flights WHERE dep_time IS NOT NULL
        UNION ALL
        SELECT flight_date, sched_dep_time, 'cancelled', flight_id, to_json({
            event: 'cancelled', flight_id: flight_id, carrier: carrier, flight: flight, flight_date: flight_date,
            origin: origin})::VARCHAR
        FROM year_of_flights WHERE dep_time IS NULL
        UNION ALL
        SELECT flight_date, arr_time, 'landed', flight_id, to_json({
            event: 'landed', flight_id: flight_id, carrier: carrier, flight: flight, flight_date: flight_date,
            dest: dest, arr_time: arr_time, arr_delay: arr_delay, air_time: air_time})::VARCHAR
        FROM year_of_flights WHERE arr_time IS NOT NULL)
    ORDER BY flight_date, minute, flight_id, kind"""
"""1,001,615 of them."""


def events(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """The number of its flight, and the event in JSON."""
    load_year(con)
    cursor = con.execute(EVENTS)
    while rows := cursor.fetchmany(BATCH):
        yield from rows


class FlightTopic:
    """A topic of its own on someone's broker. Raises ``DependencyError`` where that does not answer."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        settings = KafkaSettings(bootstrap)
        Broker(settings, "viaduck-demo").cluster_id(BROKER_WITHIN_S)
        self._failed: list[KafkaError] = []

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        made = admin.create_topics([NewTopic(self.name, PARTITIONS)])[self.name]
        try:
            made.result(CREATED_WITHIN_S)
        except KafkaException as error:
            raise self._refused(error.args[0]) from None

    def send(self, records: Iterator[tuple[str, str]], most: int | None = None) -> int:
        """Send them by their keys and wait for the broker; how many it has."""
        producer, count = Producer({"bootstrap.servers": self._bootstrap, **CLIENT}), 0
        for key, record in islice(records, most):
            self._produce(producer, key, record)
            count += 1
        left = producer.flush(DELIVERED_WITHIN_S)
        if left or self._failed:
            raise self._refused(self._failed[0] if self._failed else KafkaError(KafkaError._TIMED_OUT))
        return count

    def _produce(self, producer: Producer, key: str, record: str) -> None:
        while True:
            try:
                producer.produce(self.name, record, key, on_delivery=self._delivered)
            except BufferError:
                producer.poll(FULL_POLL_S)
            else:
                producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _refused(self, error: KafkaError) -> DependencyError:
        said = f"{self._bootstrap} does not take the topic {self.name}: {describe(error)}"
        return DependencyError("kafka", said, "check that the broker runs and has room for 300 MB")
