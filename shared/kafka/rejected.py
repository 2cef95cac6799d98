"""What a record on a topic of rejected records says of itself: behind its own headers stands why, and where it stood.

A record that was sent to its topic again carries other headers of ours behind its own, which tell where it stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Header = tuple[str, bytes | None]
WireHeaders = list[tuple[str, str | bytes | None]]

PREFIX = "viaduck-"
NAMES = ("reason", "message", "topic", "partition", "offset", "timestamp")
"""Of the headers behind a record's own, in their order."""

REDRIVEN = "viaduck-redriven-"
REDRIVEN_NAMES = ("by", "topic", "partition", "offset", "timestamp")

LARGEST_PARTITION, LARGEST_OFFSET = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class RejectedOrigin:
    """Why a record was rejected, and where it stood in its topic; ``timestamp`` in ISO 8601, empty where it had none.

    All of it is what the headers say, and anyone who may write to the topic could have written them.
    """

    reason: str
    message: str
    topic: str
    partition: int
    offset: int
    timestamp: str


def reason_headers(origin: RejectedOrigin) -> WireHeaders:
    """To be put behind a record's own headers."""
    return [(PREFIX + name, str(getattr(origin, name)).encode()) for name in NAMES]


def redriven_headers(origin: RejectedOrigin, author: str) -> WireHeaders:
    """To be put behind a record's own headers where it is sent to its topic again."""
    said: Mapping[str, Any] = {"by": author, **{name: getattr(origin, name) for name in REDRIVEN_NAMES[1:]}}
    return [(REDRIVEN + name, str(said[name]).encode()) for name in REDRIVEN_NAMES]


def told_apart(
    headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None,
) -> tuple[list[Header], RejectedOrigin | None]:
    """A record's own headers, and what the ones behind them say; None where they are not those of a rejected record.

    Headers of an earlier redrive are none of its own.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    found: list[Header] = [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
    own, last = found[: -len(NAMES)], found[-len(NAMES) :]
    if [name for name, _ in last] != [PREFIX + name for name in NAMES]:
        return found, None
    return _without_redrive(own), _origin([value or b"" for _, value in last])


def _origin(values: Sequence[bytes]) -> RejectedOrigin | None:
    reason, message, topic, partition, offset, timestamp = (each.decode(errors="backslashreplace") for each in values)
    numbers = [
        int(each) if each.isascii() and each.isdecimal() and len(each) < 20 else -1 for each in (partition, offset)
    ]
    if not 0 <= numbers[0] <= LARGEST_PARTITION or not 0 <= numbers[1] <= LARGEST_OFFSET:
        return None
    return RejectedOrigin(reason, message, topic, numbers[0], numbers[1], timestamp)


def _without_redrive(headers: list[Header]) -> list[Header]:
    last = [name for name, _ in headers[-len(REDRIVEN_NAMES) :]]
    is_redriven = last == [REDRIVEN + name for name in REDRIVEN_NAMES]
    return headers[: -len(REDRIVEN_NAMES)] if is_redriven else headers
