"""Decides about a routing value without a destination: propose it to an operator, or create a destination at once.

========================  ==================================================================
reason                    why
========================  ==================================================================
``unsafe``                no safe name can be derived from it (``safe_names``)
``removed``               an operator removed its destination: it must not return without a request
``taken``                 its id belongs to another routing value
``similar``               it differs from another id, or from another waiting value, only by case
``not_allowed``           it does not match ``appear.allow``
``asks``                  the policy is to propose
``full``                  ``appear.total`` destinations were created already
``hour_full``             ``appear.per_hour`` destinations were created within the hour
``failed``                an attempt to create it failed (reported by the caller)
``allowed``               no rule is against it: it is created
========================  ==================================================================

Values in, values out. Limits are counted from what the registry holds, so that restarts and other controls keep them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from services.control.model.lifecycle import Registered
from shared.config.model import Appear
from shared.config.safe_names import RULE, safe_name

Reason = Literal[
    "unsafe", "removed", "taken", "similar", "not_allowed", "asks", "full", "hour_full", "failed", "allowed"
]

AUTHOR = "policy"
HOUR = timedelta(hours=1)

UNSAFE = (
    f"no safe name can be derived from it ({RULE}); to include it, PUT a destination with an id of your own and this"
    " routing value"
)


@dataclass(frozen=True)
class Sighting:
    """A routing value that has no destination, by its digest; ``value`` is only its beginning if not ``whole``."""

    id: str
    value: str
    whole: bool
    rows: int
    first_seen: int

    @property
    def name(self) -> str | None:
        """The safe name that it makes."""
        return safe_name(self.value) if self.whole else None


@dataclass(frozen=True)
class PolicyDecision:
    """``message`` is for an operator, and quotes nothing of a routing value."""

    reason: Reason
    message: str

    @property
    def creates(self) -> bool:
        return self.reason == "allowed"


@dataclass(frozen=True)
class RegistrySummary:
    """What is registered, as far as it matters here."""

    living: frozenset[str]
    gone: frozenset[str]
    """Ids."""
    folded: frozenset[str]
    """All ids, without regard to case."""
    gone_values: frozenset[str]
    appeared: int
    """Destinations that appeared by themselves and are there."""
    appeared_lately: int
    """Those that did within the last hour, removed ones too."""


def standing(held: Iterable[Registered], now: datetime) -> RegistrySummary:
    everything = list(held)
    living = [each for each in everything if not each.removed]
    gone = [each for each in everything if each.removed]
    appeared = [each.appeared_at for each in everything if each.appeared_at is not None]
    return RegistrySummary(
        living=frozenset(each.id for each in living),
        gone=frozenset(each.id for each in gone),
        folded=frozenset(each.id.casefold() for each in everything),
        gone_values=frozenset(each.declared.routing_value for each in gone),
        appeared=sum(each.appeared_at is not None for each in living),
        appeared_lately=sum(at > now - HOUR for at in appeared),
    )


def twins(sightings: Iterable[Sighting]) -> frozenset[str]:
    """Folded names that several waiting values make: which of them came first would be chance."""
    names = Counter(name.casefold() for each in sightings if (name := each.name) is not None)
    return frozenset(name for name, count in names.items() if count > 1)


def decide(
    sighting: Sighting, destination: str | None, rules: Appear, there: RegistrySummary, twins: frozenset[str]
) -> PolicyDecision:
    """``destination``: what the template derives from its safe name; None if there is no such name."""
    name = sighting.name
    if name is None or destination is None:
        return PolicyDecision("unsafe", UNSAFE)
    in_the_way = _in_the_way(sighting, name, destination, there, twins)
    if in_the_way is not None:
        return in_the_way
    if rules.allow is not None and not re.fullmatch(rules.allow, name):
        return PolicyDecision("not_allowed", "it does not match appear.allow; accept it, or widen the pattern")
    if rules.policy != "create":
        return PolicyDecision("asks", "appear.policy is to ask; accept or dismiss it")
    return _within_limits(rules, there)


def _in_the_way(
    sighting: Sighting, name: str, destination: str, there: RegistrySummary, twins: frozenset[str]
) -> PolicyDecision | None:
    if destination in there.living:
        return PolicyDecision(
            "taken", f"the destination {destination} has another routing value; PUT one with an id of your own"
        )
    if destination in there.gone or sighting.value in there.gone_values:
        return PolicyDecision(
            "removed", "its destination was removed, and does not come back by itself; accept it if it may"
        )
    if destination.casefold() in there.folded or name.casefold() in twins:
        said = "another destination, or another waiting value, differs from it only by case"
        return PolicyDecision("similar", f"{said}; accept the intended one")
    return None


def _within_limits(rules: Appear, there: RegistrySummary) -> PolicyDecision:
    if there.appeared >= rules.total:
        return PolicyDecision(
            "full", f"{there.appeared} have appeared by themselves, and appear.total is {rules.total}"
        )
    if there.appeared_lately >= rules.per_hour:
        said = f"{there.appeared_lately} have appeared within the hour, and appear.per_hour is {rules.per_hour}"
        return PolicyDecision("hour_full", f"{said}; it is made when there is room again")
    return PolicyDecision("allowed", "nothing stands against it")
