"""Two destinations must not share a routing value, a lake and table, or a place for files; those of one lake must
share the policy by which it is kept small.

Values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from services.control.model.lifecycle import Declared, ManagedBy
from shared.config.lake_policies import difference
from shared.config.model import Upkeep
from shared.config.path_overlap import ONE_TABLE_EACH, PathClaim, Paths
from shared.config.upkeep_rules import Policy, policy_of
from shared.contracts.upkeep import UpkeepOverride


class Neighbour(NamedTuple):
    """A destination of another pipeline."""

    pipeline: str
    declared: Declared
    upkeep: Upkeep
    """That of the pipeline."""


@dataclass(frozen=True)
class PipelineContext:
    """What a pipeline's entries are held against, beside its own configuration: the variables of this process, and the
    destinations of other pipelines that came in such ways."""

    environ: Mapping[str, str]
    neighbours: Callable[[Collection[ManagedBy]], Iterable[Neighbour]]


Said: TypeAlias = tuple[int, UpkeepOverride | None]
"""Which pipeline's section it is, and what a destination has otherwise."""


class Policies:
    """By which policies the lakes of destinations are kept small. Thousands of destinations say the same few things, so
    what each comes to is worked out only where two of one lake say different ones."""

    def __init__(self, upkeep: Upkeep) -> None:
        """``upkeep``: of the pipeline whose destinations are asked about."""
        self._own = upkeep
        self._upkeeps = {id(upkeep): upkeep}
        self._owners: dict[Hashable, dict[Said, dict[str, None]]] = {}

    def add(self, declared: Declared, owner: str, upkeep: Upkeep | None = None) -> None:
        upkeep = upkeep or self._own
        self._upkeeps[id(upkeep)] = upkeep
        said = id(upkeep), declared.upkeep
        self._owners.setdefault(declared.lake_key, {}).setdefault(said, {})[owner] = None

    def discard(self, declared: Declared) -> None:
        for owners in self._owners.get(declared.lake_key, {}).values():
            owners.pop(declared.id, None)

    def contradiction(self, declared: Declared) -> tuple[str, str] | None:
        """The field and what is wrong with it."""
        mine = id(self._own), declared.upkeep
        there = self._owners.get(declared.lake_key, {}) if self._owners else {}
        for said, owners in there.items():
            other = next((each for each in owners if each != declared.id), None)
            if said != mine and other is not None:
                found = difference(self._policy(mine), self._policy(said), other)
                if found is not None:
                    return f"upkeep.{found[0]}", found[1]
        return None

    def _policy(self, said: Said) -> Policy:
        return policy_of(self._upkeeps[said[0]], said[1])


class UniquenessIndex:
    """What the destinations of a pipeline have taken; finding one among thousands costs nothing."""

    def __init__(
        self,
        declared: Iterable[Declared],
        neighbours: Iterable[Neighbour] = (),
        source: PathClaim | None = None,
        origin: str = "",
        upkeep: Upkeep | None = None,
    ) -> None:
        """``origin``: what a message says of a destination of ``declared`` behind its id. ``upkeep``: that of the
        pipeline, by which policies of one lake are compared; None: they are not."""
        self._origin = origin
        self._elsewhere: dict[tuple[str | None, ...], Neighbour] = {}
        self._paths = Paths()
        self._policies = None if upkeep is None else Policies(upkeep)
        for neighbour in neighbours:
            each, owner = neighbour.declared, f"{neighbour.declared.id} in the pipeline {neighbour.pipeline}"
            self._elsewhere.update(dict.fromkeys(each.places, neighbour))
            self._claim(each.claim and replace(each.claim, owner=owner))
            if self._policies is not None:
                self._policies.add(each, owner, neighbour.upkeep)
        self._claim(source)
        self._values: dict[str, Declared] = {}
        self._places: dict[tuple[str | None, ...], Declared] = {}
        for each in declared:
            self.add(each)

    def add(self, declared: Declared) -> None:
        self._values[declared.routing_value] = declared
        self._places.update(dict.fromkeys(declared.places, declared))
        self._claim(self._claim_of(declared))
        if self._policies is not None:
            self._policies.add(declared, declared.id)

    def release(self, declared: Iterable[Declared]) -> None:
        """These change together: what each of them said of its lake holds none of the others."""
        if self._policies is not None:
            for each in declared:
                self._policies.discard(each)

    def discard(self, declared: Declared) -> None:
        if self._values.get(declared.routing_value) is declared:
            del self._values[declared.routing_value]
        for place in declared.places:
            if self._places.get(place) is declared:
                del self._places[place]
        if (claim := self._claim_of(declared)) is not None:
            self._paths.discard(claim)
        self.release([declared])

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
        if self._policies is not None and (found := self._policies.contradiction(declared)) is not None:
            yield found

    def _claim_of(self, declared: Declared) -> PathClaim | None:
        return declared.claim and replace(declared.claim, owner=f"{declared.claim.owner}{self._origin}")

    def _claim(self, claim: PathClaim | None) -> None:
        if claim is not None:
            self._paths.add(claim)

    def _of_neighbours(self, declared: Declared) -> Iterator[tuple[str, str]]:
        found = (self._elsewhere[place] for place in declared.places if place in self._elsewhere)
        other = next((each for each in found if declared.same_table(each.declared)), None)
        if other is not None:
            there = f"{other.declared.id} in the pipeline {other.pipeline}"
            yield "table", f"lake and table are those of {there} too; {ONE_TABLE_EACH}"
