"""Pages of a list, with an opaque cursor: the last of what was given out, by what the list is sorted by."""

from __future__ import annotations

import base64
import binascii
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query
from pydantic import Field, TypeAdapter, ValidationError

from services.control.operations.work_items import Spans
from services.control.web.problems import HttpProblem

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most")]
After = Annotated[
    str | None, Query(max_length=1_000, description="`next` of the previous page, unchanged", examples=[None])
]
PageAfter = Annotated[str | None, Query(max_length=1_000)]
"""The same of an HTML page, whose forms may send it empty."""

Offset = Annotated[int, Field(strict=True, ge=0, le=2**62)]
_SPANS = TypeAdapter(list[tuple[Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)], Offset, Offset]])

Found = TypeVar("Found")
Key = TypeVar("Key", str, tuple[float, str])
Ranked = tuple[tuple[float, ...], str]
"""By what a list is sorted before the name, and the name."""


@dataclass(frozen=True)
class PageRequest:
    """Which part of a list a client asks for."""

    limit: int
    after: str | None


def _page_request(limit: Limit = DEFAULT_LIMIT, after: After = None) -> PageRequest:
    return PageRequest(limit, after)


AskedPage = Annotated[PageRequest, Depends(_page_request)]


def cut(found: Sequence[Found], limit: int, cursor: Callable[[Found], str]) -> tuple[Sequence[Found], str | None]:
    """``found``: what was asked for with one more than ``limit``. Those of the page, and the cursor of the next one."""
    return found[:limit], cursor(found[limit - 1]) if len(found) > limit else None


def page(names: Iterable[Key], limit: int, after: str | None) -> tuple[list[Key], str | None]:
    """Up to ``limit`` of the keys in order, and the cursor behind the last of them; None at the end.

    A cursor stays valid when names come and go. Raises ``HttpProblem`` for a cursor of another list.
    """
    ordered = sorted(names)
    start = 0 if after is None else _start(ordered, after)
    found = list(islice(ordered, start, start + limit))
    more = start + limit < len(ordered)
    return found, _write(found[-1]) if more else None


def ranked_page(ranked: Iterable[Ranked], ranks: int, limit: int, after: str | None) -> tuple[list[str], str | None]:
    """As ``page``, of names that have so many ``ranks`` each."""
    ordered = sorted(ranked)
    start = 0 if after is None else bisect_right(ordered, _ranked(_decoded(after), ranks))
    found = ordered[start : start + limit]
    more = start + limit < len(ordered)
    return [name for _, name in found], _write(found[-1]) if more else None


def _ranked(found: Any, ranks: int) -> Ranked:
    match found:
        case [[*numbers], str() as name] if len(numbers) == ranks:
            if all(isinstance(number, int | float) for number in numbers):
                return tuple(map(_float, numbers)), name
    raise _none_of_ours()


def write_number(number: int) -> str:
    return _write(str(number))


def read_number(cursor: str | None) -> int | None:
    """Raises ``HttpProblem`` for a cursor that is none of a list by numbers."""
    if cursor is None:
        return None
    found = _read(cursor)
    if not isinstance(found, str) or not found.isdecimal() or len(found) > 18:
        raise _none_of_ours()
    return int(found)


def write_id(last: str) -> str:
    """For a list of what is never forgotten: its place is where that one has it."""
    return _write(last)


def read_id(cursor: str | None, find: Callable[[str], Found | None]) -> Found | None:
    """What a page ended with. Raises ``HttpProblem`` for a cursor that is none of a list of such."""
    if cursor is None:
        return None
    last = _read(cursor)
    found = find(last) if isinstance(last, str) and last.isalnum() and last.isascii() else None
    if found is None:
        raise _none_of_ours()
    return found


def write_spans(spans: Spans | None) -> str | None:
    """What is still to be looked at of a topic's partitions; None where that is nothing."""
    return None if spans is None else _write([[number, first, end] for number, (first, end) in sorted(spans.items())])


def read_spans(cursor: str | None) -> Spans | None:
    """Raises ``HttpProblem`` for a cursor that is none of a topic's."""
    if cursor is None:
        return None
    try:
        return {number: (first, end) for number, first, end in _SPANS.validate_python(_decoded(cursor))}
    except ValidationError:
        raise _none_of_ours() from None


def _start(ordered: list[Key], cursor: str) -> int:
    after = _read(cursor)
    if ordered and type(ordered[0]) is not type(after):
        raise _none_of_ours()
    return bisect_right(ordered, after)


def _write(key: str | tuple[float, str] | Ranked | list[list[int]]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> str | tuple[float, str]:
    found = _decoded(cursor)
    if isinstance(found, str):
        return found
    match found:
        case [int() | float() as number, str() as name]:
            return _float(number), name
    raise _none_of_ours()


def _decoded(cursor: str) -> Any:
    try:
        return json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _none_of_ours() from None


def _float(number: float) -> float:
    try:
        found = float(number)
    except OverflowError:  # a whole number of hundreds of digits
        raise _none_of_ours() from None
    if math.isnan(found):  # which has no place in any order
        raise _none_of_ours()
    return found


def _none_of_ours() -> HttpProblem:
    return HttpProblem("invalid", "after: not a cursor of this list", "send `next` of the previous page, unchanged")
