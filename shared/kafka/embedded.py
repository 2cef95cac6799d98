"""The broker for deployments without one: librdkafka's mock cluster, in a process of its own.

It listens on this machine only, and every user of the machine may connect: messages are signed (``signing``). It
stores nothing on disk and at most 5 MB per partition, and each start has another port. That suffices, because
messages are hints; a deployment of more than one machine wants a real broker.

    python -m shared.kafka.embedded FILE     writes its address to FILE once it answers, and runs until SIGTERM
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import structlog
from confluent_kafka import Producer

from shared.runtime import log as logging
from shared.runtime.process import die_with_parent, is_supervised
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

ANSWER_WITHIN_S = 10.0
LOOK_EVERY_S = 60.0


class EmbeddedBroker:
    """A running mock cluster; it lives as long as this object."""

    def __init__(self) -> None:
        # An address without a server: it is replaced by the mock's own.
        properties = {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 3}
        self._handle = Producer(properties)
        brokers = self._handle.list_topics(timeout=ANSWER_WITHIN_S).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def tell(address: str, file: Path) -> None:
    """Write the address atomically, readable by this user only."""
    unfinished = file.with_name(file.name + ".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write(address)
    unfinished.replace(file)


def main(file: Path) -> int:
    logging.configure("broker")
    with Signals() as signals:
        if is_supervised():
            die_with_parent()
        broker = EmbeddedBroker()
        tell(broker.bootstrap, file)
        log.info("embedded_broker_started", bootstrap=broker.bootstrap)
        while signals.ended_by is None:
            signals.wait(LOOK_EVERY_S)
            signals.take_reload()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
