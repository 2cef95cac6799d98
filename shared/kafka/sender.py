"""The parts of a publisher that its users need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

OnDelivery = Callable[[Exception | None], None]
Headers = Mapping[str, str]
Value = bytes | None


class Sender(Protocol):
    """``shared.kafka.publisher.Publisher`` is one; ``value`` None is a tombstone."""

    def send(
        self, topic: str, key: str, value: Value, headers: Headers | None = None, on_delivery: OnDelivery | None = None
    ) -> None: ...


class FlushingSender(Sender, Protocol):
    def flush(self, timeout_s: float) -> int: ...
