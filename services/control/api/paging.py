"""Pages of a list, with an opaque cursor: the last of what was given out, by what the list is sorted by."""

from __future__ import annotations

import base64
import binascii
import json
import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from services.control.api.problems import Problem

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

Key = TypeVar("Key", str, tuple[float, str])


def page(names: Iterable[Key], limit: int, after: str | None) -> tuple[list[Key], str | None]:
    """Up to ``limit`` of the keys in order, and the cursor behind the last of them; None where that is the end.

    A cursor stays good when names come and go. Raises ``Problem`` for one that is none of this list.
    """
    ordered = sorted(names)
    start = 0 if after is None else _start(ordered, after)
    found = list(islice(ordered, start, start + limit))
    more = start + limit < len(ordered)
    return found, _write(found[-1]) if more else None


def write_number(number: int) -> str:
    return _write(str(number))


def read_number(cursor: str | None) -> int | None:
    """Raises ``Problem`` for a cursor that is none of a list by numbers."""
    if cursor is None:
        return None
    found = _read(cursor)
    if not isinstance(found, str) or not found.isdecimal() or len(found) > 18:
        raise _none_of_ours()
    return int(found)


def _start(ordered: list[Key], cursor: str) -> int:
    after = _read(cursor)
    if ordered and type(ordered[0]) is not type(after):
        raise _none_of_ours()
    return bisect_right(ordered, after)


def _write(key: str | tuple[float, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _read(cursor: str) -> str | tuple[float, str]:
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _none_of_ours() from None
    if isinstance(found, str):
        return found
    match found:
        case [int() | float() as number, str() as name]:
            return _float(number), name
    raise _none_of_ours()


def _float(number: float) -> float:
    try:
        found = float(number)
    except OverflowError:  # a whole number of hundreds of digits
        raise _none_of_ours() from None
    if math.isnan(found):  # which has no place in any order
        raise _none_of_ours()
    return found


def _none_of_ours() -> Problem:
    return Problem("invalid", "after: not a cursor of this list", "send `next` of the page before, as it is")
