"""What a planted mistake is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.tiers import BESIDE, Tier, tier_of


@dataclass(frozen=True)
class Mistake:
    """``plant`` makes it; ``noticed_by`` are pytest's arguments that select tests which must then fail."""

    name: str
    what: str
    plant: Callable[[], None]
    noticed_by: tuple[str, ...]

    @property
    def is_noticed_by_check(self) -> bool:
        """Whether `make check` has those tests. Words of ``-k`` that select a test beside it count against it."""
        *places, words = self.noticed_by if "-k" in self.noticed_by else (*self.noticed_by, "")
        within = [place for place in places if tier_of(place) is Tier.CHECK]
        chosen = [word for word in re.split(r" and | or ", words) if word]
        beside = [test for test in BESIDE if test.startswith(tuple(within))]
        return bool(within) and not any(word in test for word in chosen for test in beside)


def put(owner: object, name: str, made: object) -> None:
    """Replace what must be there: a mistake in a function that was renamed would otherwise plant nothing."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, made)
