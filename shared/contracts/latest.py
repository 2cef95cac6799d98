"""Which message of a compacted topic holds: of each key the one of the highest order, of equal ones the last read.

The place in the topic decides nothing. After partitions were added, an older message of a key may be in another
partition, and be read last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def order(self) -> Any: ...


Message = TypeVar("Message", bound=Ordered)


class Latest(Generic[Message]):
    """The message that holds of each key. For one thread, or under its owner's lock."""

    def __init__(self) -> None:
        self._held: dict[str, Message] = {}

    def take(self, said: Message) -> bool:
        """Take in a message. Returns whether it holds now."""
        before = self._held.get(said.key)
        if before is not None and said.order < before.order:
            return False
        self._held[said.key] = said
        return True

    def get(self, key: str) -> Message | None:
        return self._held.get(key)

    def clear(self) -> None:
        self._held.clear()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._held.values())
