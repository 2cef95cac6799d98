"""The five topics: their names, and how they are kept."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings

LONGEST_NAME = 249
"""Characters of a topic's name."""

WEEK_MS = 7 * 24 * 3600 * 1000


class _Name:
    """The name of one topic: its own behind the prefix of all."""

    def __init__(self, own: str) -> None:
        self._own = own

    def __get__(self, topics: Topics, _: type[Topics]) -> str:
        return f"{topics.prefix}.{self._own}"


@dataclass(frozen=True)
class Topics:
    """Names of the topics under one prefix."""

    prefix: str = "viaduck"

    destinations = _Name("destinations")
    pipelines = _Name("pipelines")
    work = _Name("work")
    progress = _Name("progress")
    dead_letter = _Name("dead-letter")

    def rejected(self, pipeline: str) -> str:
        """The topic that takes the records of which no row can be made. Names of pipelines may hold what those of
        topics may not."""
        name = f"{self.prefix}.rejected.{pipeline}"
        if len(name) <= LONGEST_NAME and re.fullmatch(r"[A-Za-z0-9._-]+", pipeline):
            return name
        digest = hashlib.sha256(pipeline.encode()).hexdigest()[:16]
        return f"{self.prefix}.rejected.{re.sub(r'[^A-Za-z0-9._-]', '-', pipeline)[:20]}-{digest}"

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self.kept)

    @property
    def kept(self) -> dict[str, dict[str, str]]:
        """Topic configuration by name: state is compacted, hints and letters go by time."""
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": str(WEEK_MS // 7)}
        by_time = {"cleanup.policy": "delete", "retention.ms": str(WEEK_MS)}
        return {
            self.destinations: compacted,
            self.pipelines: compacted,
            self.work: by_time,
            self.progress: compacted,
            self.dead_letter: {**by_time, "retention.ms": str(4 * WEEK_MS)},
        }


def group_of(prefix: str, pipeline: str) -> str:
    """The consumer group without members that tells other tools how far a pipeline's topic is read."""
    return f"{prefix}.{pipeline}"


def ensure_rejected(settings: KafkaSettings, pipeline: str, timeout_s: float = 30.0) -> None:
    """Create the topic of a pipeline's rejected records where it is missing. Raises as ``ensure`` does."""
    kept = {"cleanup.policy": "delete", "retention.ms": str(4 * WEEK_MS)}
    Broker(settings).ensure({Topics(settings.prefix).rejected(pipeline): kept}, timeout_s)


def ensure(settings: KafkaSettings, timeout_s: float = 30.0) -> None:
    """Create our topics where they are missing. Raises ``DependencyError`` where the broker does not answer."""
    Broker(settings).ensure(Topics(settings.prefix).kept, timeout_s)
