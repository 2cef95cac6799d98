"""What a catalog's database is asked: constant text, names that become identifiers, values that are only ever bound.

Names and values come from strangers. So the text is filled in one pass, which never looks again at what it has put in,
and a value is no part of it at all: it travels beside the text, at a numbered place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.contracts.errors import ViaduckError

Value = str | int

PLACE = re.compile(r"\{(\w*)\}|:([a-z]\w*)")


@dataclass(frozen=True)
class Question:
    """One statement: ``{name}`` in ``text`` stands for an identifier of ``names``, ``:name`` for one of ``values``.

    ``names`` are quoted already, by ``ident`` or ``path``.
    """

    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)

    def rendered(self, mark: str) -> tuple[str, list[Value]]:
        """The statement with its values at ``mark`` and a number (``$1`` on Postgres, ``?1`` on SQLite), and these.

        Raises ``KeyError`` for a place that nothing is given for, and ``ViaduckError`` (``value_refused``) for a text
        that no catalog can hold.
        """
        order: list[str] = []

        def put(place: re.Match[str]) -> str:
            name, value = place.groups()
            if value is None:
                return self.names[name]
            if value not in order:
                order.append(value)
            return f"{mark}{order.index(value) + 1}"

        text = PLACE.sub(put, self.text)
        return text, [_writable(self.values[name]) for name in order]


def _writable(value: Value) -> Value:
    """Postgres has no text with a NUL, nobody one with half a character: what can't be there is not looked for."""
    if isinstance(value, str) and ("\x00" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise ViaduckError(
            "value_refused",
            f"a catalog can't be asked for {value[:80]!r}: it holds what is no character",
            "correct the name",
        )
    return value
