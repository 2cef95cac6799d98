"""Whether targets are routed here as control declared them, and as the reader counted their changes.

A changed ``routing`` reaches services one by one. Rows of one generation that were chosen by two columns would be
wrong, and no position would show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from services.applier.model.task import Target
from services.applier.worker.in_flight import Numbered
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.messages import ItemKind
from shared.contracts.routed_by import RoutedBy
from shared.lake.catalog.reader import TableInfo

ROUTED = frozenset({ItemKind.SEED, ItemKind.CHANGES, ItemKind.ADVANCE})
"""Kinds of items that rest on which rows are whose."""


def routed_otherwise(
    targets: Sequence[Numbered], own: RoutedBy, look: Callable[[], TableInfo | None]
) -> list[tuple[Numbered, ViaduckError]]:
    """The targets that may not be moved by ``own``, the routing of this applier's file, each with why.

    Two names may mean one column. ``look`` at the source's table tells: it is called where a name is another one, at
    most once, and may raise a ``ViaduckError``. A topic's table has no former names, so there names have to be equal.
    """
    doubtful = [numbered for numbered in targets if any(said != own for said, _ in _said(numbered[1]))]
    if not doubtful:
        return []
    try:
        table = look()
    except ViaduckError as error:
        return [(numbered, error) for numbered in doubtful]
    names = frozenset[str]() if table is None else table.own_names(own.field)
    found = ((numbered, _why_not(numbered[1], own, names)) for numbered in doubtful)
    return [(numbered, why) for numbered, why in found if why is not None]


def _said(target: Target) -> Iterator[tuple[RoutedBy, str]]:
    """How others route the target, and what they did so for. Older services say nothing."""
    item, destination = target.item, target.destination
    if destination.routed_by is not None:
        yield destination.routed_by, f"control declared its generation {destination.generation}"
    if item.routed_by is not None:
        yield item.routed_by, "the reader counted its changes"


def _why_not(target: Target, own: RoutedBy, names: frozenset[str]) -> DestinationError | None:
    for said, what in _said(target):
        if not own.means(said, names):
            return DestinationError(
                "destination_differs",
                f"{target.destination.key} is routed by {own} in this applier's file, but {what} by {said};"
                " nothing is moved",
                "give control, readers and appliers the same file, and restart those that still have an older one; it"
                " is tried again by itself",
            )
    return None
