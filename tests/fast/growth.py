"""How large the collections of a long-lived object are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

OURS = ("services.", "shared.")


def sizes(root: object) -> dict[str, int]:
    """The length of every collection that an object of ours holds, be it in another object of ours, by its path."""
    return dict(_sizes(root, type(root).__name__, set()))


def _sizes(it: object, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(it) in seen:
        return
    seen.add(id(it))
    if isinstance(it, dict | list | set | frozenset | deque):
        yield path, len(it)
    elif type(it).__module__.startswith(OURS):
        for name, value in _attributes(it):
            yield from _sizes(value, f"{path}.{name}", seen)


def _attributes(it: object) -> Iterator[tuple[str, Any]]:
    slots = [slot for each in type(it).__mro__ for slot in getattr(each, "__slots__", ())]
    yield from ((name, getattr(it, name)) for name in slots if hasattr(it, name))
    yield from vars(it).items() if hasattr(it, "__dict__") else ()
