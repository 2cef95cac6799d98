"""Queries on a catalog's database: constant text, checked names as identifiers, and bound values.

Names and values are untrusted. The text is filled in one pass, which never scans what it has inserted,
and a value is no part of it: values are bound to numbered parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.contracts.errors import ViaduckError

Value = str | int | bytes | None

PLACE = re.compile(r"\{(\w*)\}|:([a-z]\w*)")


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

        def put(place: re.Match[str]) -> str:
            name, value = place.groups()
            if value is None:
                return self.names[name]
            return f"{mark}{places.setdefault(value, after + len(places) + 1)}"

        text = PLACE.sub(put, self.text)
        return text, [_writable(self.values[name]) for name in places]


def _writable(value: Value) -> Value:
    """Postgres has no text with a NUL, and no database has half a character: such values cannot be found."""
    if isinstance(value, str) and ("\x00" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise ViaduckError(
            "value_refused",
            f"a catalog can't be asked for {value[:80]!r}: it holds what is no character",
            "correct the name",
        )
    return value
