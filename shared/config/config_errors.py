"""The mistakes of one file: at most one line for each place, in the order of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import dumps
from typing import TypeAlias

from shared.contracts.errors import ConfigError

WHOLE = "the file"
LONGEST_QUOTE = 80

UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What no path, catalog or message can hold: the null character and halves of surrogate pairs."""

Position: TypeAlias = tuple[int, int]
"""Line and column, from one."""


class Mistakes:
    """Collects; the first that is said of a place stays."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._forgiven: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def note(self, path: str, text: str) -> None:
        """``text`` says what is wrong and what to write instead."""
        self._lines.setdefault(path, text)

    def forgive(self, path: str) -> None:
        """Another line has explained why there is nothing at ``path``."""
        self._forgiven.add(path)

    def items(self) -> list[tuple[str, str]]:
        """What was said of which place, in the order in which it was noted."""
        return list(self._lines.items())

    def covers(self, path: str) -> bool:
        """Whether something has been said of this place, or of the whole that it is a part of."""
        return path in self._forgiven or any(whole in self._lines for whole in wholes(path))

    def error(self, positions: Mapping[str, Position]) -> ConfigError:
        """All of it, sorted by where it stands; what isn't in the file sorts with what it is missing from."""
        known = [(_position(path, positions), f"{path or WHOLE}: {text}") for path, text in self._lines.items()]
        return ConfigError([line for _, line in sorted(known, key=lambda entry: entry[0])])


def join(path: str, key: str | int) -> str:
    """``destinations`` and 1 → ``destinations[1]``; ``source`` and ``table`` → ``source.table``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    shown = key if re.fullmatch(r"[\w.-]+", key) else quoted(key)
    return f"{path}.{shown}" if path else shown


def quoted(text: str) -> str:
    """A text of the file as it may stand in a message: on one line, and not endless."""
    short = text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"
    return dumps(short, ensure_ascii=not short.isprintable())


def wholes(path: str) -> list[str]:
    """A path and all that it is a part of, the nearest first."""
    found = [path]
    while (cut := max(found[-1].rfind("."), found[-1].rfind("["))) > 0:
        found.append(found[-1][:cut])
    return found


def _position(path: str, positions: Mapping[str, Position]) -> Position:
    return next((positions[whole] for whole in wholes(path) if whole in positions), (0, 0))
