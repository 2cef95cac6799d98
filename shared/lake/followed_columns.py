"""From which positions a table's columns are followed to a later snapshot, and by which steps: values alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from shared.contracts.errors import DestinationError
from shared.contracts.evolution import EvolutionPolicy
from shared.lake.column_history import Field, Versions, changed, fields_at
from shared.lake.column_identity import Identifying, replaced
from shared.lake.evolution import NotFollowed, Step, first_not_allowed, steps_between

FOLLOW = EvolutionPolicy.FOLLOW


@dataclass(frozen=True)
class Evolution:
    """What became of a table's columns between a position and a later snapshot."""

    then: tuple[Field, ...]
    now: tuple[Field, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Break:
    """Positions from ``first`` to ``last`` that columns are not followed from under a ``policy``, and ``why``."""

    first: int
    last: int
    why: str
    policy: EvolutionPolicy = FOLLOW
    by_policy: bool = False
    """Whether another policy would follow them."""

    def refuses(self, position: int, policy: EvolutionPolicy) -> bool:
        return self.policy is policy and self.first <= position <= self.last

    def error(self, position: int) -> DestinationError:
        """Why a destination at ``position`` parks."""
        return not_followed(NotFollowed(self.why, by_policy=self.by_policy), position, self.policy)


def evolution(
    versions: Versions, identifying: Identifying, since: int, at: int, policy: EvolutionPolicy = FOLLOW
) -> Evolution | None:
    """What a destination at ``since`` has to follow; None for nothing. Raises ``NotFollowed`` where it may not, or
    can't."""
    if not changed(versions, since, at):
        return None
    then, now = fields_at(versions, since), fields_at(versions, at)
    if not then:
        return None  # a table that was not there yet is another one, which the cursor tells
    if (why := replaced(versions, identifying, since, at)) is not None:
        raise NotFollowed(why)
    steps = steps_between(then, now)
    refused = first_not_allowed(steps, policy, identifying.ids(versions, at))
    if refused is not None:
        raise NotFollowed(f"the source's columns changed ({refused.said})", by_policy=True)
    return Evolution(then, now, steps) if steps else None


def breaks(versions: Versions, identifying: Identifying, at: int) -> tuple[Break, ...]:
    """The older positions from which the columns at snapshot ``at`` are not followed, under each policy."""
    points = sorted({n for each in versions for n in (each.begin, each.end) if n is not None and n <= at})
    found = list[Break]()
    for first, end in pairwise(points):
        for policy in EvolutionPolicy:
            why = _refusal(versions, identifying, first, at, policy)
            found += [] if why is None else [Break(first, end - 1, str(why), policy, why.by_policy)]
    return tuple(found)


def not_followed(why: NotFollowed, position: int, policy: EvolutionPolicy) -> DestinationError:
    """Why a destination at ``position`` parks."""
    said = f"{why}, after snapshot {position} of the source, where this destination is"
    if why.by_policy:
        hint = "set evolution.policy: follow, or reseed the destination"
        return DestinationError("schema_change", f"{said}; evolution.policy: {policy} does not follow that", hint)
    hint = "reseed the destination: only that shows in the rows which it has what they show at the source now"
    return DestinationError("schema_change", said, hint)


def _refusal(
    versions: Versions, identifying: Identifying, since: int, at: int, policy: EvolutionPolicy
) -> NotFollowed | None:
    try:
        evolution(versions, identifying, since, at, policy)
    except NotFollowed as error:
        return error
    return None
