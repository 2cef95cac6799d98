"""From which positions a table's columns are followed to a later snapshot, and by which steps: values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from shared.contracts.errors import DestinationError
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.columns.evolution import ColumnStep, NotFollowed, addition, first_not_allowed, steps_between
from shared.lake.columns.history import ColumnVersion, Field, Versions, changed, fields_at, terms_changed
from shared.lake.columns.identity import Identifying, identified, replaced

FOLLOW = EvolutionPolicy.FOLLOW


@dataclass(frozen=True)
class ColumnEvolution:
    """What became of a table's columns between a position and a later snapshot."""

    then: tuple[Field, ...]
    now: tuple[Field, ...]
    steps: tuple[ColumnStep, ...]


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


def whose(have: Sequence[Field], then: tuple[Field, ...], now: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """The source's columns that a table's are, in order; None where that is not known. Columns that came without a row
    may still be missing at the end, or the owner of the lake has already added them all."""
    if not have:
        return None
    return next((each for each in (then[: len(have)], now) if _shown(each) == _shown(have)), None)


def named(have: Sequence[Field], followed: ColumnEvolution | None, names: Sequence[str]) -> tuple[Field, ...] | None:
    """Those of a table's columns that the source calls so once it was followed; None where that is not known."""
    theirs, now = (have, have) if followed is None else (whose(have, followed.then, followed.now), followed.now)
    ids = {field.name.lower(): field.id for field in now}
    own = {each.id: mine for each, mine in zip(theirs or (), have, strict=False)}
    found = [own.get(ids.get(name.lower(), -1)) for name in names]
    return tuple(field for field in found if field is not None) if None not in found else None


def evolution(
    versions: Versions, identifying: Identifying, since: int, at: int, policy: EvolutionPolicy = FOLLOW
) -> ColumnEvolution | None:
    """What a destination at ``since`` has to follow; None for nothing. Raises ``NotFollowed`` where it may not, or
    can't."""
    found = _evolution(versions, identifying, since, at)
    refused = None if found is None else first_not_allowed(found.steps, policy, identifying.ids(versions, at))
    if refused is not None:
        raise _by_policy(refused.said)
    return found


def _evolution(versions: Versions, identifying: Identifying, since: int, at: int) -> ColumnEvolution | None:
    """The same under the policy that follows all that can be."""
    if not changed(versions, since, at):
        return None
    then, now = fields_at(versions, since), fields_at(versions, at)
    if not then:
        return None  # a table that was not there yet is another one, which the cursor tells
    if (why := replaced(versions, identifying, since, at)) is not None:
        raise NotFollowed(why)
    steps = steps_between(then, now)
    return ColumnEvolution(then, now, steps) if steps else None


def terms_are_due(
    versions: Versions, followed: ColumnEvolution | None, since: int, at: int, commented: int = NOT_SEEDED
) -> bool:
    """Whether a transaction that moves a destination from ``since`` has to look at NOT NULL, defaults and comments: it
    does in any case where columns are followed. ``commented``: the newest snapshot that changed a comment, where
    comments are carried."""
    return followed is not None or commented > since or terms_changed(versions, since, at)


def _shown(fields: Sequence[Field]) -> list[tuple[str, str]]:
    return [(field.name, field.declared) for field in fields]


def _by_policy(said: str) -> NotFollowed:
    return NotFollowed(f"the source's columns changed ({said})", by_policy=True)


def breaks(versions: Versions, identifying: Identifying, at: int) -> tuple[Break, ...]:
    """The older positions from which the columns at snapshot ``at`` are not followed, under each policy."""
    points = {n for each in versions for n in (each.begin, each.end) if n is not None and n <= at}
    return _breaks(tuple(versions), identifying, tuple(sorted(points)))


@lru_cache(maxsize=8)
def _breaks(
    versions: tuple[ColumnVersion, ...], identifying: Identifying, points: tuple[int, ...]
) -> tuple[Break, ...]:
    """Each poll asks, and a table may have changed a thousand times: only another change is computed."""
    found = list[Break]()
    now = _Now.of(versions, identifying, points[-1]) if points else None
    for first, end in pairwise(points):
        refusals = {} if now is None else _refusals(versions, identifying, first, now)
        found += [Break(first, end - 1, str(why), policy, why.by_policy) for policy, why in refusals.items()]
    return tuple(found)


@dataclass(frozen=True)
class _Now:
    """The columns at snapshot ``at``, and which of them the configured names mean."""

    at: int
    fields: Sequence[Field]
    identifying: frozenset[int]
    has_all: bool

    @classmethod
    def of(cls, versions: Versions, identifying: Identifying, at: int) -> _Now:
        has_all = all(identified(versions, name, at) is not None for name in identifying.names)
        return cls(at, fields_at(versions, at), identifying.ids(versions, at), has_all)

    def only_grew(self, then: Sequence[Field]) -> bool:
        """Whether the columns are those of ``then`` and others behind them, none of which rows are told by."""
        if not self.has_all or not self.identifying <= {field.id for field in then} or len(then) > len(self.fields):
            return False
        return all(one.identity == other.identity for one, other in zip(then, self.fields, strict=False))


def _refusals(
    versions: Versions, identifying: Identifying, since: int, now: _Now
) -> Mapping[EvolutionPolicy, NotFollowed]:
    """Under which policies the columns ``now`` are not followed from ``since``."""
    then = fields_at(versions, since)
    if now.only_grew(then):  # nearly all changes, of which comparing field by field costs a second for a thousand
        added = now.fields[len(then) :]
        return {EvolutionPolicy.FREEZE: _by_policy(addition(added[0]))} if then and added else {}
    try:
        found = _evolution(versions, identifying, since, now.at)
    except NotFollowed as why:
        return dict.fromkeys(EvolutionPolicy, why)
    steps = () if found is None else found.steps
    refused = {policy: first_not_allowed(steps, policy, now.identifying) for policy in EvolutionPolicy}
    return {policy: _by_policy(step.said) for policy, step in refused.items() if step is not None}


def not_followed(why: NotFollowed, position: int, policy: EvolutionPolicy) -> DestinationError:
    """Why a destination at ``position`` parks."""
    said = f"{why}, after snapshot {position} of the source, where this destination is"
    if why.by_policy:
        hint = "set evolution.policy: follow, or reseed the destination"
        return DestinationError("schema_change", f"{said}; evolution.policy: {policy} does not follow that", hint)
    hint = "reseed the destination: only that shows in the rows which it has what they show at the source now"
    return DestinationError("schema_change", said, hint)
