"""Two destinations must not share a routing value, nor a lake and table with anybody. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.control.lifecycle import Declared

ADVICE = "write another catalog, schema or table"

Neighbour = tuple[str, Declared]
"""Another pipeline's name, and a destination of it."""


class Taken:
    """What the destinations of a pipeline have taken; finding one among thousands costs nothing."""

    def __init__(self, declared: Iterable[Declared], neighbours: Iterable[Neighbour] = ()) -> None:
        self._elsewhere = {place: neighbour for neighbour in neighbours for place in neighbour[1].places}
        self._values: dict[str, Declared] = {}
        self._places: dict[tuple[str | None, ...], Declared] = {}
        for each in declared:
            self.add(each)

    def add(self, declared: Declared) -> None:
        self._values[declared.routing_value] = declared
        self._places.update(dict.fromkeys(declared.places, declared))

    def discard(self, declared: Declared) -> None:
        if self._values.get(declared.routing_value) is declared:
            del self._values[declared.routing_value]
        for place in declared.places:
            if self._places.get(place) is declared:
                del self._places[place]

    def clashes(self, declared: Declared) -> Iterator[tuple[str, str]]:
        """Field and message of what ``declared`` shares with somebody else."""
        other = self._values.get(declared.routing_value)
        if other is not None and other.id != declared.id:
            yield "routing_value", f"is that of {other.id} too; each routing value goes to one destination"
        there = (self._places[place] for place in declared.places if place in self._places)
        same = next((each for each in there if each.id != declared.id and declared.same_table(each)), None)
        if same is not None:
            yield "table", f"lake and table are those of {same.id} too; {ADVICE}"
        yield from self._strange(declared)

    def _strange(self, declared: Declared) -> Iterator[tuple[str, str]]:
        found = (self._elsewhere[place] for place in declared.places if place in self._elsewhere)
        pipeline, other = next(((name, each) for name, each in found if declared.same_table(each)), (None, None))
        if other is not None:
            yield "table", f"lake and table are those of {other.id} in the pipeline {pipeline} too; {ADVICE}"
