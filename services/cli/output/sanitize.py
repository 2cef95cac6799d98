"""Makes untrusted texts (routing values, ids, messages) safe to print on a terminal."""

from __future__ import annotations

import unicodedata

from rich.markup import escape

STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that steer a terminal, or turn or break what is read."""

JOINERS = "\u200c\u200d"
"""They are of that kind and steer nothing: Persian and some emoji are written with them."""


def legible(text: str) -> str:
    """``text`` on one line, with each character that would steer a terminal written out: ``\\x1b``, ``\\u202e``."""
    return "".join(map(_shown, text))


def legible_lines(text: str) -> str:
    """The same for a text that may have several lines."""
    return "\n".join(map(legible, text.split("\n")))


def cell(text: str) -> str:
    """The same for a table or a line of Rich's, which reads [brackets] as markup."""
    return escape(legible(text))


def _shown(character: str) -> str:
    steers = unicodedata.category(character) in STEERING and character not in JOINERS
    return character.encode("unicode_escape").decode() if steers else character
