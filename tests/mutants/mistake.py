"""What a planted mistake is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """``plant`` makes it; ``noticed_by`` are pytest's arguments that select tests which must then fail."""

    name: str
    what: str
    plant: Callable[[], None]
    noticed_by: tuple[str, ...]


def put(owner: object, name: str, made: object) -> None:
    """Replace what must be there: a mistake in a function that was renamed would otherwise plant nothing."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, made)
