"""The rights that each service needs on a broker with ACLs.

A signature proves that a service of the deployment wrote a message; ACLs say which client may write at all. With one
principal per service, a compromised reader cannot declare destinations, and a compromised applier cannot send work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.kafka.topics import Topics, group_of

Service = Literal["control", "reader", "applier"]
Operation = Literal["Read", "Write", "Describe", "Create"]

SERVICES: tuple[Service, ...] = ("control", "reader", "applier")


@dataclass(frozen=True, order=True)
class Grant:
    """One principal's right: ``operation`` on the topic or consumer group of this name, or on all groups whose names
    begin so where it ends with a dot."""

    kind: Literal["topic", "group"]
    name: str
    operation: Operation


def grants(service: Service, prefix: str = "viaduck") -> tuple[Grant, ...]:
    """All that ``service`` needs for pipelines of lakes where control makes the topics. A read or a write is a look
    (Describe), too."""
    topics = Topics(prefix)
    found = {Grant("topic", topic, "Describe") for topic in topics.all}
    found |= {Grant("topic", topic, "Read") for topic in _read(service, topics)}
    found |= {Grant("topic", topic, "Write") for topic in _written(service, topics)}
    if service == "control":
        found |= {Grant("topic", topic, "Create") for topic in topics.all}
    if service == "applier":
        found.add(Grant("group", f"{prefix}.appliers.", "Read"))
    return tuple(sorted(found))


def source_grants(service: Service, topic: str, pipeline: str, prefix: str = "viaduck") -> tuple[Grant, ...]:
    """What ``service`` needs beyond that on the cluster of a topic that a pipeline lands. Only redrives need control's
    Write, and only tools that show lags the reader's group."""
    found = {Grant("topic", topic, "Describe"), Grant("topic", topic, "Read")}
    if service == "control":
        found.add(Grant("topic", topic, "Write"))
    if service == "reader":
        found.add(Grant("group", group_of(prefix, pipeline), "Read"))
    return tuple(sorted(found))


def rejected_grants(service: Service, pipeline: str, prefix: str = "viaduck") -> tuple[Grant, ...]:
    """The same on the deployment's own cluster: on the topic of the pipeline's rejected records."""
    name = Topics(prefix).rejected(pipeline)
    operations: dict[Service, tuple[Operation, ...]] = {
        "control": ("Describe", "Read"),
        "applier": ("Create", "Describe", "Write"),
    }
    return tuple(Grant("topic", name, each) for each in operations.get(service, ()))


def _read(service: Service, topics: Topics) -> tuple[str, ...]:
    if service == "control":
        return topics.all
    own = topics.progress if service == "reader" else topics.work
    return topics.destinations, topics.pipelines, own


def _written(service: Service, topics: Topics) -> tuple[str, ...]:
    """Control writes work and progress for operators alone, who send items and letters again."""
    if service == "control":
        return topics.all
    own = (topics.work, topics.progress) if service == "reader" else (topics.progress,)
    return (*own, topics.dead_letter)
