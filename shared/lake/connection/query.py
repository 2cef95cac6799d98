"""Queries on a catalog's database: constant text, checked names as identifiers, and bound values.

Names and values are untrusted. The text is filled in one pass, which never scans what it has inserted,
and a value is no part of it: values are bound to numbered parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from shared.contracts.errors import ViaduckError

Value = str | int | bytes | None

PLACE = re.compile(r"\{(\w*)\}|:([a-z]\w*)")

UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
"""Postgres has no text with a NUL, and no database has half a character."""

REMEMBERED_TEXTS = 1_024
"""Texts are constant but for how many rows a list of values has."""


@dataclass(frozen=True)
class Question:
    """One statement: ``{name}`` in ``text`` stands for an identifier of ``names``, ``:name`` for one of ``values``.

    ``names`` are quoted already, by ``ident`` or ``path``.
    """

    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)

    def rendered(self, mark: str, *, after: int = 0) -> tuple[str, list[Value]]:
        """The statement with its values at ``mark`` and a number (``$1`` on Postgres, ``?1`` on SQLite), and these.

        ``after``: so many values stand before it, in the statement that it becomes a part of.

        Raises ``KeyError`` for a place that nothing is given for, and ``ViaduckError`` (``value_refused``) for a text
        that no catalog can hold.
        """
        places: dict[str, int] = {}
        parts = list[str]()
        for before, name, value in _split(self.text):
            parts.append(before)
            if value is not None:
                parts.append(f"{mark}{places.setdefault(value, after + len(places) + 1)}")
            elif name is not None:
                parts.append(self.names[name])
        return "".join(parts), [_writable(self.values[name]) for name in places]


@lru_cache(REMEMBERED_TEXTS)
def _split(text: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """What stands before each place, and the place's name or value; at the end, what stands after the last."""
    parts, end = list[tuple[str, str | None, str | None]](), 0
    for place in PLACE.finditer(text):
        name, value = place.groups()
        parts.append((text[end : place.start()], name, value))
        end = place.end()
    return (*parts, (text[end:], None, None))


def _writable(value: Value) -> Value:
    """Values that no database holds cannot be found."""
    if isinstance(value, str) and UNWRITABLE.search(value):
        raise ViaduckError(
            "value_refused",
            f"a catalog can't be asked for {value[:80]!r}: it holds what is no character",
            "correct the name",
        )
    return value
