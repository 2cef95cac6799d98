"""Detects that the broker was wiped, or that topics were deleted and created again. Kafka's clients do not.

They wait without end for a topic that is missing, or continue at a position of the old topic. So the topics are
created again, and their users start over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from shared.contracts.errors import DependencyError
from shared.kafka.broker import Broker, DescribedTopic
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from shared.runtime.background import Background

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 2.0
ANSWER_WITHIN_S = 10.0
SOON_S = 1.0
"""A look waits so long for its answer, and twice as long after each that failed: a client that waits for a node which
is gone takes a core (``Broker.identities``)."""


class RenewalWatch:
    """Polls the topics' identities on a thread of its own, and calls ``on_renewed`` there when they changed.

    The embedded broker needs none: it returns at another address, with which every service is started again.
    """

    def __init__(
        self, settings: KafkaSettings, client_id: str, on_renewed: Callable[[], None], broker: Broker | None = None
    ) -> None:
        self._settings = settings
        self._on_renewed = on_renewed
        self._kept = Topics(settings.prefix).kept
        self._broker = broker or Broker(settings, client_id)
        self._known: Mapping[str, DescribedTopic] = {}
        self._patience_s = SOON_S
        self._loop = Background(f"renewal watch {client_id}", self._run)

    def start(self) -> None:
        if not self._settings.embedded:
            self._loop.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        self._loop.stop(timeout_s)

    def _run(self, loop: Background) -> None:
        while not loop.stopped.wait(LOOK_EVERY_S if self._known else 0):
            loop.turned()
            try:
                self._look()
            except DependencyError as error:
                log.debug("topics_not_readable", error=error.message)  # the clients themselves report it
                self._patience_s = min(2 * self._patience_s, ANSWER_WITHIN_S)
                loop.stopped.wait(LOOK_EVERY_S)
            else:
                self._patience_s = SOON_S

    def _look(self) -> None:
        found = self._broker.identities(self._kept, self._patience_s)
        if len(found) < len(self._kept):
            self._broker.ensure(self._kept, ANSWER_WITHIN_S)
            found = self._broker.identities(self._kept, ANSWER_WITHIN_S)
        if self._known and found != self._known and len(found) == len(self._kept):
            changed = sorted(name for name in found if found[name] != self._known.get(name))
            log.warning("topics_recreated", topics=changed)
            self._on_renewed()
        if len(found) == len(self._kept):
            self._known = found
