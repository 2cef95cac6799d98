"""What librdkafka says → what our callers can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from shared.contracts.errors import ConfigError, Error

log = structlog.get_logger(__name__)

Client = TypeVar("Client")

REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
UNREACHABLE = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
)

# A consumer of the new group protocol dies of a wiped broker with ``_FATAL`` while ``fatal()`` says False.
FATAL = frozenset({KafkaError._FATAL})


class NotDelivered(Error):
    """The broker did not confirm a message."""


class ClientLost(Error):
    """A client that cannot continue and must be created again."""


def is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() in FATAL


def describe(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


def build(factory: Callable[[dict[str, Any]], Client], properties: dict[str, Any]) -> Client:
    """Build a client. Raises ``ConfigError`` for a property that librdkafka does not take; its value is not shown."""
    try:
        return factory(properties)
    except KafkaException as error:
        said = str(error.args[0].str()).split('"')
        # The odd parts are quoted: of `Invalid value "x" for configuration property "y"` only y may be shown.
        text = '"'.join(said) if len(said) <= 3 else f'no such value for "{said[-2]}"'
        raise ConfigError([f"kafka.properties: {text}; see librdkafka's list of properties"]) from None


class Watch:
    """Remembers what is wrong between a client and its broker, and logs each new trouble once.

    Called from librdkafka's callbacks and read from other threads; a single reference is swapped, so no lock is needed.
    """

    def __init__(self, client_id: str, *, is_member: bool = True) -> None:
        """``is_member``: it reads as one of a group; else that it may not know of the group is no trouble."""
        self._client_id = client_id
        self._is_member = is_member
        self._problem: str | None = None
        self._fatal: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the broker can't be used now; None while nothing is known to be wrong."""
        return self._problem

    @property
    def fatal(self) -> str | None:
        """Why this client is dead; None while it lives."""
        return self._fatal

    def concerns(self, error: KafkaError) -> bool:
        """Whether it is this client's: librdkafka asks for the coordinator of the group even where the group is not
        used, and hands out that it may not, to callbacks and among the messages."""
        return self._is_member or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED

    def __call__(self, error: KafkaError) -> None:
        if not self.concerns(error):
            return
        said = describe(error)
        if is_fatal(error):
            self._fatal = said
        if error.code() not in REFUSED | UNREACHABLE and not is_fatal(error):
            log.warning("kafka_client_error", client=self._client_id, error=said)
            return
        if self._problem is None or error.code() in REFUSED:
            self._report(said, error)

    def _report(self, said: str, error: KafkaError) -> None:
        if self._problem != said:
            log.error("kafka_unavailable", client=self._client_id, error=said, refused=error.code() in REFUSED)
        self._problem = said

    def works(self) -> None:
        """The broker answered."""
        if self._problem is not None:
            log.info("kafka_available", client=self._client_id)
        self._problem = None
