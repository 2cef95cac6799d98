"""Parses the layout of a destination's table: which texts are partitions and sort orders, and of which columns.

::

    partitioned_by   "same", or  column | year(column) | month(column) | day(column) | hour(column), …
    sorted_by        "same", or  column [ASC | DESC] [NULLS FIRST | NULLS LAST], …

A column is a plain name, or any name in double quotes, a double quote in it doubled. DuckLake takes expressions here,
and evaluates them at each insert; nothing else than what is parsed here reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.config.substituted_words import SUBSTITUTED_WORD, refusal
from shared.contracts.errors import Error
from shared.contracts.layout import SAME

COLUMN = "identity"
TRANSFORMS = ("year", "month", "day", "hour")

LONGEST = 2_000
"""Characters of a text."""

MOST_TERMS = 16

NAME = r'(?:[^\W\d]\w*|"(?:[^"]|"")+")'
PARTITION = re.compile(
    rf"(?:(?P<transform>\w+)\s*\((?P<arguments>[^\"()]*?)\s*(?P<inner>{NAME})\s*\)|(?P<plain>{NAME}))"
)
SORT = re.compile(
    rf"(?P<name>{NAME})(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?", re.IGNORECASE
)
NEXT = re.compile(r"\s*,\s*")

NO_BUCKET = (
    "holds bucket(), which is not set: once a table has files of another partitioning, DuckLake does not find their"
    " rows by value; write a column, or year, month, day or hour of one"
)


class LayoutRefused(Error):
    """A text that is no layout. ``str()`` says why and what to write instead."""


@dataclass(frozen=True)
class PartitionField:
    """One part of the partition's key. ``transform``: ``identity`` or one of ``TRANSFORMS``."""

    transform: str
    column: str


@dataclass(frozen=True)
class SortKey:
    """One column of a sort order."""

    column: str
    descending: bool = False
    nulls_first: bool = False


def partitions(text: str) -> tuple[PartitionField, ...]:
    """The parts of a partition's key, which is not ``SAME``. Raises ``LayoutRefused``."""
    found = tuple(
        _partition(match) for match in _terms(text, PARTITION, "columns and year, month, day or hour of them")
    )
    if len({(each.transform, each.column.lower()) for each in found}) < len(found):
        raise LayoutRefused("names one part twice; name it once")
    return found


def sort_keys(text: str) -> tuple[SortKey, ...]:
    """The columns of a sort order, which is not ``SAME``. Raises ``LayoutRefused``."""
    found = tuple(
        _sort_key(match) for match in _terms(text, SORT, "columns, each with ASC or DESC behind it if need be")
    )
    if len({each.column.lower() for each in found}) < len(found):
        raise LayoutRefused("names one column twice; name it once")
    return found


def faults(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and message of what is wrong with the texts of a section ``layout``."""
    for key, parse in (("partitioned_by", partitions), ("sorted_by", sort_keys)):
        text = section.get(key)
        if not isinstance(text, str) or text == SAME:
            continue
        try:
            parse(text)
        except LayoutRefused as refused:
            yield key, str(refused)


def _terms(text: str, term: re.Pattern[str], wanted: str) -> Iterator[re.Match[str]]:
    _require_harmless(text)
    position, count, text = 0, 0, text.strip()
    while text:
        found = term.match(text, position)
        if found is None or count == MOST_TERMS:
            raise LayoutRefused(f"is no list of at most {MOST_TERMS} {wanted}; quote a name with other characters")
        yield found
        count += 1
        if found.end() == len(text):
            return
        comma = NEXT.match(text, found.end())
        if comma is None:
            raise LayoutRefused(f"is no list of at most {MOST_TERMS} {wanted}; quote a name with other characters")
        position = comma.end()


def _require_harmless(text: str) -> None:
    if len(text) > LONGEST or re.search(r"[\x00-\x1f\x7f]", text):
        raise LayoutRefused(f"is longer than {LONGEST} characters or holds a control character; write columns alone")
    if found := SUBSTITUTED_WORD.search(text):
        raise LayoutRefused(refusal(found))


def _partition(found: re.Match[str]) -> PartitionField:
    if found["plain"] is not None:
        return PartitionField(COLUMN, _unquoted(found["plain"]))
    transform = found["transform"].lower()
    if transform == "bucket":
        raise LayoutRefused(NO_BUCKET)
    if transform not in TRANSFORMS or found["arguments"].strip():
        raise LayoutRefused(f"has an unknown transform; write a column, or one of {', '.join(TRANSFORMS)} of a column")
    return PartitionField(transform, _unquoted(found["inner"]))


def _sort_key(found: re.Match[str]) -> SortKey:
    direction, nulls = (found["direction"] or "ASC").upper(), (found["nulls"] or "LAST").upper()
    return SortKey(_unquoted(found["name"]), direction == "DESC", nulls == "FIRST")


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
