"""Pages of a list, with an opaque cursor: the last name that was given out."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice

from services.control.api.problems import Problem

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000


def page(names: Iterable[str], limit: int, after: str | None) -> tuple[list[str], str | None]:
    """Up to ``limit`` of the names in order, and the cursor behind the last of them; None where that is the end.

    A cursor stays good when names come and go. Raises ``Problem`` for one that is none of ours.
    """
    ordered = sorted(names)
    start = 0 if after is None else bisect_right(ordered, _read(after))
    found = list(islice(ordered, start, start + limit))
    more = start + limit < len(ordered)
    return found, _write(found[-1]) if more else None


def _write(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _read(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Problem(422, "after: not a cursor of this list", "send `next` of the page before, as it is") from None
