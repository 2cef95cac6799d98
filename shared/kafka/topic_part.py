"""Bounded parts of one of our topics for a request, byte for byte: keys, values and headers as they were sent."""

from __future__ import annotations

from contextlib import closing

from shared.contracts.errors import DependencyError, SourceError
from shared.contracts.positions import Vector
from shared.kafka.scan import Scan, Spans
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import Bounds, Take, TopicRecords

SILENCE_S = 10.0

HINT = "check that the broker answers, and lets control describe and read the topic"


class TopicPart:
    """Each call has clients of its own. Raises ``DependencyError`` where the broker does not answer or refuses."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id

    def spans(self, topic: str) -> Spans | None:
        """Where lies what the topic holds now; None where there is no such topic."""
        return Scan(self._settings, self._client_id).spans_of(topic)

    def read(self, topic: str, spans: Spans, bounds: Bounds, take: Take) -> Spans:
        """Hand what lies there to ``take``, in batches; returns what is left where a bound was reached."""
        begin = Vector.of({number: first for number, (first, _) in spans.items()})
        end = Vector.of({number: last for number, (_, last) in spans.items()})
        try:
            with closing(TopicRecords(self._settings, topic, self._client_id)) as records:
                reached = records.read(begin, end, bounds, SILENCE_S, take).next
        except SourceError as error:
            raise DependencyError("broker", error.message, HINT) from None
        left = {number: (max(first, reached.get(number, 0)), last) for number, (first, last) in spans.items()}
        return {number: (first, last) for number, (first, last) in left.items() if first < last}
