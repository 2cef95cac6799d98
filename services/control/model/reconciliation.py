"""What a file declares, held against what the registry holds. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from services.control.model.conflicts import UniquenessIndex
from services.control.model.lifecycle import Declared, Registered, Revision, declare, remove
from shared.contracts.errors import ConfigError
from shared.contracts.routed_by import RoutedBy


def reconcile(
    held: Mapping[str, Registered],
    declared: Iterable[Declared],
    revision: Revision,
    touched: Collection[str] = (),
    routed_by: RoutedBy | None = None,
    own_names: Collection[str] = (),
) -> tuple[Registered, ...]:
    """What the registry must write so that it holds what the file declares; what came over REST stays, routed
    by what the file says now. ``routed_by``: None where there is no such file any more. ``own_names``: those that mean
    its routing column, and never meant another one.

    Raises ``ConfigError`` where the file and what came over REST exclude each other.
    """
    wanted = {each.id: each for each in declared}
    over_rest = [each.declared for each in held.values() if each.managed_by == "api" and not each.removed]
    mistakes = list(_conflicts(wanted, over_rest))
    if mistakes:
        raise ConfigError(mistakes)
    now = [
        declare(held.get(d.id), d, "file", revision, touched=d.id in touched, own_names=own_names)
        for d in wanted.values()
    ]
    stay = [each for each in held.values() if each.managed_by == "api" and each.id not in wanted]
    now += [_routed(each, routed_by, own_names, revision) for each in stay if routed_by is not None]
    gone = [remove(each, revision) for each in held.values() if each.managed_by == "file" and each.id not in wanted]
    return tuple(each for each in [*now, *gone] if each is not held.get(each.id))


def _routed(held: Registered, routed_by: RoutedBy, own_names: Collection[str], revision: Revision) -> Registered:
    """What came over REST says of itself all but which column it is routed by."""
    if held.removed or held.removing or held.declared.routed_by == routed_by:
        return held
    declared = replace(held.declared, routed_by=routed_by, laid_out=None, left=(), damage=None)
    return declare(held, declared, "api", revision, own_names=own_names)


def _conflicts(wanted: Mapping[str, Declared], over_rest: Collection[Declared]) -> Iterator[str]:
    for each in over_rest:
        if each.id in wanted and not wanted[each.id].same_table(each):
            advice = "declare the same one, or remove it over REST first"
            yield f"destinations: {each.id} came over REST with another lake or table; {advice}"
    taken = UniquenessIndex((each for each in over_rest if each.id not in wanted), origin=" (over REST)")
    for declared in wanted.values():
        for field, said in taken.clashes(declared):
            yield f"destinations: {declared.id}: {field}: {said}"
