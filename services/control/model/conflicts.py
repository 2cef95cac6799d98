"""Two destinations must not share a routing value, a lake and table, or a place for files.

Values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from services.control.model.lifecycle import Declared
from shared.config.path_overlap import ONE_TABLE_EACH, Claim, Paths

Neighbour = tuple[str, Declared]
"""Another pipeline's name, and a destination of it."""


class UniquenessIndex:
    """What the destinations of a pipeline have taken; finding one among thousands costs nothing."""

    def __init__(
        self,
        declared: Iterable[Declared],
        neighbours: Iterable[Neighbour] = (),
        source: Claim | None = None,
        origin: str = "",
    ) -> None:
        """``origin``: what a message says of a destination of ``declared`` behind its id."""
        self._origin = origin
        self._elsewhere: dict[tuple[str | None, ...], Neighbour] = {}
        self._paths = Paths()
        for name, each in neighbours:
            self._elsewhere.update(dict.fromkeys(each.places, (name, each)))
            self._claim(each.claim and replace(each.claim, owner=f"{each.id} in the pipeline {name}"))
        self._claim(source)
        self._values: dict[str, Declared] = {}
        self._places: dict[tuple[str | None, ...], Declared] = {}
        for each in declared:
            self.add(each)

    def add(self, declared: Declared) -> None:
        self._values[declared.routing_value] = declared
        self._places.update(dict.fromkeys(declared.places, declared))
        self._claim(self._claim_of(declared))

    def discard(self, declared: Declared) -> None:
        if self._values.get(declared.routing_value) is declared:
            del self._values[declared.routing_value]
        for place in declared.places:
            if self._places.get(place) is declared:
                del self._places[place]
        if (claim := self._claim_of(declared)) is not None:
            self._paths.discard(claim)

    def clashes(self, declared: Declared) -> Iterator[tuple[str, str]]:
        """Field and message for each thing that ``declared`` shares with another destination."""
        other = self._values.get(declared.routing_value)
        if other is not None and other.id != declared.id:
            yield (
                "routing_value",
                f"is that of {other.id}{self._origin} too; each routing value goes to one destination",
            )
        there = (self._places[place] for place in declared.places if place in self._places)
        same = next((each for each in there if each.id != declared.id and declared.same_table(each)), None)
        if same is not None:
            yield "table", f"lake and table are those of {same.id}{self._origin} too; {ONE_TABLE_EACH}"
        yield from self._of_neighbours(declared)
        if declared.claim is not None and (said := self._paths.clash(declared.claim)) is not None:
            yield "data_path", said

    def _claim_of(self, declared: Declared) -> Claim | None:
        return declared.claim and replace(declared.claim, owner=f"{declared.claim.owner}{self._origin}")

    def _claim(self, claim: Claim | None) -> None:
        if claim is not None:
            self._paths.add(claim)

    def _of_neighbours(self, declared: Declared) -> Iterator[tuple[str, str]]:
        found = (self._elsewhere[place] for place in declared.places if place in self._elsewhere)
        pipeline, other = next(((name, each) for name, each in found if declared.same_table(each)), (None, None))
        if other is not None:
            yield "table", f"lake and table are those of {other.id} in the pipeline {pipeline} too; {ONE_TABLE_EACH}"
